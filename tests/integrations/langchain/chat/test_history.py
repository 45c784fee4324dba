"""The messages of a chat in LangChain's form: kept here or by a store, with what it takes to plan them again."""

import asyncio
import json
from dataclasses import replace

import pytest

from contextpilot_core import ContextBlock
from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.chat import Asked, Entry, Held
from tests.conftest import require

require("langchain_core")

from langchain_core.messages import (  # noqa: E402
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from contextpilot_integrations.langchain.chat.history import (  # noqa: E402
    CONTEXT,
    MemoryHistories,
    MemoryHistory,
    aload,
    as_openai,
    as_sent,
    asave,
    entry_of,
    message_of,
    reported_scale,
    save,
)
from tests.integrations.langchain_chats import HOWS, Stored, U, asking, chat_of, resolved  # noqa: E402
from tests.integrations.langchain_fakes import names_in  # noqa: E402

ASKED = Asked("q", (ContextBlock(text="tea"),), order=(0,), base="b", tokens=3)
TEXT = "[Doc 1]\n===\ntea\n===\n\nq"
OURS = Entry({"role": "user", "content": TEXT}, ASKED)
UNCOUNTED = Entry({"role": "user", "content": TEXT}, replace(ASKED, tokens=0))


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
    history, held = store(), Held((None, 0))

    def keep(messages, replaced=None):
        given = history, messages, held, replaced
        assert (asyncio.run(asave(*given)) if asynchronous else save(*given)) is None

    keep([HumanMessage("a"), AIMessage("b")])
    keep([HumanMessage("c")])
    assert [message.content for message in asyncio.run(aload(history))] == ["a", "b", "c"]
    keep([], history.messages)  # nothing came: what is there stays
    assert len(history.messages) == 3
    keep([HumanMessage("d")], history.messages)
    assert [message.content for message in history.messages] == ["d"]
    held.void()
    keep([HumanMessage("e")], history.messages)  # the session was reset meanwhile
    assert [message.content for message in history.messages] == ["d"]


@pytest.mark.parametrize("store", [MemoryHistory, lambda: Stored([])], ids=["sync", "async"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "asave"])
def test_what_is_saved_while_its_session_is_reset_does_not_stay(store, asynchronous):
    history, held = store(), Held((None, 0))
    add = history.add_messages

    def slow(messages):
        held.void()
        history.clear()
        add(messages)

    history.add_messages = slow
    arguments = history, [HumanMessage("a"), AIMessage("b")], held
    asyncio.run(asave(*arguments)) if asynchronous else save(*arguments)
    assert history.messages == []


# --- messages and entries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (HumanMessage("t"), "user"),
        (AIMessage("t"), "assistant"),
        (AIMessageChunk("t"), "assistant"),
        (SystemMessage("t"), "system"),
        (ToolMessage("t", tool_call_id="1"), "tool"),
        (HumanMessage([{"type": "text", "text": "t"}]), "user"),
    ],
)
def test_a_message_of_others_is_read_by_role_and_content_and_comes_back_itself(message, role):
    entry = entry_of(message)
    assert entry.message == as_openai(message) == {"role": role, "content": message.content}
    assert entry.asked is None
    assert message_of(entry) is message


def test_a_message_of_ours_is_made_once_and_read_again():
    message = message_of(OURS)
    assert (message.type, message.content) == ("human", TEXT)
    (again,) = messages_from_dict(json.loads(json.dumps(messages_to_dict([message]))))
    assert entry_of(again) == Entry(OURS.message, ASKED, again)
    assert message_of(entry_of(again)) is again


def test_a_question_without_text_or_record_is_a_user_message():
    assert message_of(Entry(None, Asked("", ()))).content == ""
    assert message_of(Entry({"role": "user", "content": "t"})) == HumanMessage("t")


def test_the_record_stays_here():
    message = message_of(OURS)
    message.additional_kwargs["name"] = "ann"
    assert as_sent(message) == HumanMessage(TEXT, additional_kwargs={"name": "ann"})
    assert CONTEXT in message.additional_kwargs
    other = HumanMessage("t", additional_kwargs={"name": "ann"})
    assert as_sent(other) is other


def test_only_a_user_message_can_be_a_question_of_ours():
    kept = message_of(OURS).additional_kwargs
    assert entry_of(AIMessage(TEXT, additional_kwargs=kept)).asked is None


@pytest.mark.parametrize(
    "record",
    ["x", {}, {"query": "q"}, {"query": "q", "blocks": [{"text": 5}], "tokens": 1, "base": "b"}, [1]],
)
@pytest.mark.parametrize("how", HOWS)
def test_a_record_that_others_wrote_is_read_over(record, how):
    history = MemoryHistory()
    history.add_messages([HumanMessage("hello", additional_kwargs={CONTEXT: record}), AIMessage("hi")])
    chat, model = chat_of(history=lambda session_id: history, max_context_tokens=10_000)
    asking(chat, how)("D1 what?", U)
    assert [message.content for message in model.prompts[0][:2]] == ["hello", "hi"]
    assert CONTEXT not in model.prompts[0][0].additional_kwargs
    assert names_in(model.prompts[0][2].content) == {"D1"}


@pytest.mark.parametrize("cut", [False, True])
def test_what_an_application_took_out_of_a_message_does_not_come_back(cut):
    """Neither when the window is full, nor when what stood before the message is gone."""
    history = MemoryHistory()
    chat, model = chat_of(history=lambda session_id: history, max_context_tokens=None if cut else 380)
    for names in ("D1,D2", "D3", "D2"):
        chat.invoke(f"{names} what?", U)
    messages = history.messages
    messages[2] = messages[2].model_copy(update={"content": "[removed]"})
    history.clear()
    history.add_messages(messages[2:] if cut else messages)
    chat.invoke("D4,D5,D6 what?", U)
    assert model.prompts[-1][0].content == "[removed]"
    assert [names_in(message.content) for message in model.prompts[-1][2::2]] == [{"D2"}, {"D4", "D5", "D6"}]
    assert [message.content for message in history.messages[::2]] == [m.content for m in model.prompts[-1][::2]]
    chat.engine.check_integrity()


# --- sizes ---------------------------------------------------------------------------------------------------------


def answer(tokens):
    usage = None if tokens is None else {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    return AIMessage("ok", usage_metadata=usage)


@pytest.mark.parametrize(
    ("messages", "scale"),
    [
        ([], 1.0),
        ([message_of(OURS)], 1.0),
        ([message_of(OURS), answer(None)], 1.0),
        ([message_of(OURS), answer(0)], 1.0),
        ([message_of(OURS), answer(6)], 2.0),
        ([message_of(UNCOUNTED), answer(6)], 1.0),
        ([message_of(OURS), answer(6), message_of(OURS), answer(9)], 3.0),
        ([message_of(OURS), answer(6), HumanMessage("theirs"), answer(9)], 2.0),
        ([message_of(OURS), answer(6), message_of(OURS), answer(None)], 2.0),
    ],
)
def test_the_last_report_tells_how_the_model_counts(messages, scale):
    assert reported_scale([entry_of(message) for message in messages]) == scale


# --- halves of characters ------------------------------------------------------------------------------------------


def test_what_a_store_brings_is_sent_whole_and_stays_as_it_is():
    """Another application may have written half a character there, which no client library can send."""
    theirs = AIMessage(
        ["a \ud83d", {"type": "text", "text": "\ud83d\ude00"}],
        additional_kwargs={"reasoning_content": "\udfff"},
        tool_calls=[{"name": "f", "args": {"q": "\ud800"}, "id": "1"}],
    )
    sent = as_sent(theirs)
    assert sent.content == ["a \ufffd", {"type": "text", "text": "\U0001f600"}]
    assert sent.additional_kwargs == {"reasoning_content": "\ufffd"}
    assert sent.tool_calls[0]["args"] == {"q": "\ufffd"}
    assert theirs.content[0] == "a \ud83d"
    assert entry_of(theirs).message["content"] == sent.content
    assert as_sent(sent) is sent


# --- stores that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_store_that_fails_while_a_history_is_replaced_gets_back_what_it_had(asynchronous):
    class Failing(Stored):
        def add_messages(self, messages):
            if any(message.content == "new" for message in messages):
                raise OSError("disk full")
            super().add_messages(messages)

        async def aadd_messages(self, messages):
            self.add_messages(messages)

    history, had = Failing([]), [HumanMessage("a"), AIMessage("b")]
    history.add_messages(had)
    held, new = Held((None, 0)), [HumanMessage("new"), AIMessage("ok")]
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(asave(history, new, held, had)) if asynchronous else save(history, new, held, had)
    assert [message.content for message in history.messages] == ["a", "b"]
