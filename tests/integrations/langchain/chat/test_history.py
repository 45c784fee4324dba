"""The messages of a chat in LangChain's form: kept here or by a store, with what it takes to plan them again."""

import asyncio

import pytest

from contextpilot_core.errors import ConfigError
from tests.conftest import require

require("langchain_core")

from langchain_core.messages import (  # noqa: E402
    AIMessage,
    HumanMessage,
)

from contextpilot_integrations.langchain.chat.history import (  # noqa: E402
    MemoryHistories,
    MemoryHistory,
    aload,
    asave,
    save,
)
from tests.integrations.langchain_chats import HOWS, Stored, U, asking, chat_of, resolved  # noqa: E402

# --- in this process -----------------------------------------------------------------------------------------------


def test_messages_are_appended_and_cleared_and_nobody_elses_list():
    history = MemoryHistory()
    history.add_messages([HumanMessage("a")])
    history.add_messages([AIMessage("b")])
    history.messages.clear()
    assert [message.content for message in history.messages] == ["a", "b"]
    history.clear()
    assert history.messages == []


def test_a_history_is_kept_from_its_first_message_on():
    histories = MemoryHistories(2)
    for name in "ab":
        histories(name).add_messages([HumanMessage(name)])
    for number in range(5):
        assert histories(f"unknown {number}").messages == []  # reading is no use of it
    assert [histories(name).messages for name in "ab"] == [[HumanMessage("a")], [HumanMessage("b")]]


def test_the_history_that_was_added_to_least_recently_is_forgotten():
    histories = MemoryHistories(2)
    for name in "abac":
        histories(name).add_messages([HumanMessage(name)])
    assert [len(histories(name).messages) for name in "abc"] == [2, 0, 1]


def test_a_history_that_was_forgotten_during_its_turn_is_whole_again():
    histories = MemoryHistories(1)
    histories("a").add_messages([HumanMessage("one")])
    during = histories("a")
    histories("b").add_messages([HumanMessage("other")])
    during.add_messages([AIMessage("two")])
    assert [message.content for message in histories("a").messages] == ["one", "two"]
    assert histories("b").messages == []


@pytest.mark.parametrize("limit", [0, -1, True, "5"])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(ConfigError, match="max_sessions=.*must be a whole number"):
        MemoryHistories(limit)


def test_sessions_that_fail_or_are_only_read_forget_no_other():
    def answer(messages):
        if "fail" in messages[-1].content:
            raise OSError
        return AIMessage("ok")

    chat, model = chat_of(max_sessions=2)
    model.answer = answer
    for name in "ab":
        chat.invoke("D1 what?", session_id=name)
    for number in range(5):
        with pytest.raises(OSError):
            chat.invoke("D1 fail?", session_id=f"failing {number}")
        assert chat.history(f"unknown {number}") == []
        assert chat.reset(f"unknown {number}") is False
    assert [len(chat.history(name)) for name in "ab"] == [2, 2]


def test_asynchronous_calls_use_the_asynchronous_methods_of_a_history():
    history = Stored([])
    chat, model = chat_of(history=lambda session_id: history, max_context_tokens=300)
    for names in ("D1,D2", "D3", "D4,D5"):
        asyncio.run(chat.ainvoke(f"{names} what?", U))
    assert "clear" in history.calls
    assert history.calls.count("get") == history.calls.count("add") == 3
    assert resolved(model.prompts[-1])[-1] == {"D4", "D5"}


@pytest.mark.filterwarnings("ignore")
def test_langchains_own_histories_work():
    from langchain_core.chat_history import InMemoryChatMessageHistory

    kept = {}
    chat, model = chat_of(
        history=lambda name: kept.setdefault(name, InMemoryChatMessageHistory()), max_context_tokens=400
    )
    for how in HOWS * 2:
        asking(chat, how)("D1,D2 what?", U)
    assert resolved(model.prompts[-1])[-1] == {"D1", "D2"}
    assert kept["u"].messages == chat.history("u")


def test_histories_of_this_process_are_bounded():
    chat, _ = chat_of(max_sessions=3)
    for number in range(6):
        chat.invoke("D1 what?", session_id=str(number))
    assert chat.history("5")
    assert chat.history("0") == []


def test_a_store_of_ones_own_is_taken_even_when_it_counts_as_false():
    class Store(dict):
        def __call__(self, name):
            return self.setdefault(name, MemoryHistory())

    store = Store()
    chat, _ = chat_of(history=store)
    chat.invoke("D1 what?", U)
    assert len(store["u"].messages) == 2


# --- loaded and saved ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [MemoryHistory, lambda: Stored([])], ids=["sync", "async"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "asave"])
def test_a_turn_is_appended_or_replaces_everything(store, asynchronous):
    history = store()

    def keep(*arguments):
        return asyncio.run(asave(history, *arguments)) if asynchronous else save(history, *arguments)

    keep([HumanMessage("a"), AIMessage("b")], False)
    keep([HumanMessage("c")], False)
    assert [message.content for message in asyncio.run(aload(history))] == ["a", "b", "c"]
    keep([], True)  # nothing came: what is there stays
    assert len(history.messages) == 3
    keep([HumanMessage("d")], True)
    assert [message.content for message in history.messages] == ["d"]
