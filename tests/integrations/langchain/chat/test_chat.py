"""The chat: prompts that only grow, nothing lost, full windows, failures, sessions, histories (cases D1-D10, S16)."""

import asyncio
import contextvars
import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.tokens import estimate_tokens
from contextpilot_integrations.session import session
from tests.conftest import require
from tests.parsing import parse_context

require("langchain_core")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.output_parsers import StrOutputParser  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain import ContextPilotRetriever, create_contextpilot_chat  # noqa: E402
from contextpilot_integrations.langchain.chat.history import MemoryHistory  # noqa: E402
from tests.integrations.langchain_chats import (  # noqa: E402
    HOWS,
    Stored,
    U,
    asking,
    chat_of,
    extending,
    fixed,
    resolved,
)
from tests.integrations.langchain_fakes import Lists, Recorder, chatml, document, names_in, text_of  # noqa: E402

# --- turns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_each_turn_starts_with_the_whole_of_the_one_before(how):
    chat, model = chat_of(instructions="Be brief.")
    ask = asking(chat, how)
    for names in ("D1,D2,D3", "D2,D1,D4", "D4,D2", "D9"):
        assert ask(f"{names} what?", U).strip() == "ok"
    assert extending(model.prompts)
    assert [message.type for message in model.prompts[-1]] == ["system"] + ["human", "ai"] * 3 + ["human"]
    final = chatml(model.prompts[-1])
    assert all(final.count(text_of(f"D{n}")) == 1 for n in (1, 2, 3, 4, 9))
    assert resolved(model.prompts[-1]) == [{"D1", "D2", "D3"}, {"D1", "D2", "D4"}, {"D2", "D4"}, {"D9"}]
    assert model.prompts[0][1].content.endswith("\n===\n\nD1,D2,D3 what?")
    chat.engine.check_integrity()
    assert chat.engine.stats().committed == 4


def test_all_ways_of_asking_give_the_same_prompts():
    prompts = []
    for how in HOWS:
        chat, model = chat_of()
        for names in ("D1,D2", "D2,D3"):
            asking(chat, how)(f"{names} what?", U)
        prompts.append([m.content.strip() for m in model.prompts[-1]])
    assert all(each == prompts[0] for each in prompts)


def test_random_conversations_lose_nothing():
    dice = random.Random(8)
    chat, model = chat_of()
    for turn in range(60):
        names = dice.sample([f"D{n}" for n in range(1, 13)], dice.randint(1, 5))
        chat.invoke(f"{','.join(names)} what?", {"configurable": {"thread_id": f"t{turn % 3}"}})
        assert resolved(model.prompts[-1])[-1] == set(names)


@pytest.mark.parametrize("how", HOWS)
def test_without_a_session_there_is_no_history(how):
    chat, model = chat_of()
    for _ in range(2):
        asking(chat, how)("D1 what?")
    assert [len(prompt) for prompt in model.prompts] == [1, 1]


def test_which_name_counts():
    chat, _ = chat_of(session_id="field")
    chat.invoke("D1 a", U, session_id="call")
    chat.invoke("D1 b", U)
    chat.invoke("D1 c", {"metadata": {"conversation_id": "m"}})
    with session("around"):
        chat.invoke("D1 d")
    chat.invoke("D1 e")
    for name, letter in zip(("call", "u", "m", "around", "field"), "abcde", strict=True):
        assert chat.history(name)[0].content.endswith(f"D1 {letter}")
        assert len(chat.history(name)) == 2
    chat.reset("u")
    assert chat.history("u") == []


@pytest.mark.parametrize("asynchronous", [False, True], ids=["stream", "astream"])
def test_a_stream_belongs_to_the_session_in_which_it_was_begun(asynchronous):
    chat, _ = chat_of()

    async def read(chunks):
        return [chunk async for chunk in chunks]

    with session("u"):
        chunks = chat.astream("D1 a") if asynchronous else chat.stream("D1 a")
    with session("another"):
        asyncio.run(read(chunks)) if asynchronous else list(chunks)
    assert (len(chat.history("u")), chat.history("another")) == (2, [])


@pytest.mark.parametrize(
    "question",
    [
        "D1 x",
        {"input": "D1 x"},
        HumanMessage("D1 x"),
        {"input": HumanMessage("D1 x")},
        HumanMessage([{"type": "text", "text": "D1 "}, {"type": "text", "text": "x"}]),
        {"input": HumanMessage(["D1 ", {"type": "text", "text": "x"}])},
        {"input": [{"type": "text", "text": "D1 x"}]},
    ],
)
def test_questions(question):
    chat, model = chat_of()
    chat.invoke(question)
    assert model.prompts[0][-1].content.endswith("===\n\nD1 x")


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"question": "x"}, RequestTypeError),
        (5, RequestTypeError),
        (
            HumanMessage([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]),
            RequestTypeError,
        ),
        (HumanMessage([{"type": "text", "text": " "}]), RequestError),
        (HumanMessage([]), RequestTypeError),
        ("  ", RequestError),
    ],
)
def test_what_is_no_question_is_refused(question, error):
    chat, model = chat_of(retriever=fixed("t"))
    with pytest.raises(error):
        chat.invoke(question, U)
    assert model.prompts == []
    assert chat.engine.stats().planned == 0
    chat.invoke("D1", U)  # the session is free again


@pytest.mark.parametrize("how", HOWS)
def test_a_parser_inside_is_refused(how):
    with pytest.raises(RequestTypeError, match="llm answered with a .*; give a chat model"):
        asking(create_contextpilot_chat(Lists(), Recorder() | StrOutputParser()), how)("D1 what?", U)


def test_arguments_go_to_the_model_and_extra_fields_stay():
    def answer(messages):
        return AIMessage("ok", additional_kwargs={"reasoning": "r"}, id="a1")

    chat, model = chat_of(Recorder(answer=answer))
    chat.invoke("D1 x", U, temperature=0.5)
    chat.invoke("D1 y", U)
    assert model.options[0] == {"temperature": 0.5}
    assert model.prompts[1][1].additional_kwargs == {"reasoning": "r"}
    assert all("contextpilot" not in message.additional_kwargs for message in model.prompts[1])


def test_in_a_chain_and_its_events():
    chat, _ = chat_of()
    assert (chat | StrOutputParser()).invoke("D1 x", U) == "ok"
    assert "".join((chat | StrOutputParser()).stream({"input": "D1 y"}, U)).strip() == "ok"

    async def events():
        return [event["event"] async for event in chat.astream_events("D1 z", U)]

    seen = set(asyncio.run(events()))
    assert {"on_retriever_start", "on_retriever_end", "on_chat_model_stream", "on_chain_stream"} <= seen
    assert len(chat.history("u")) == 6


def test_the_documents_of_our_own_retriever_come_by_relevance():
    engine = ReuseEngine()
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=engine)
    retriever.invoke("D1,D2,D3")
    chat, model = chat_of(retriever=retriever, engine=ReuseEngine())
    chat.invoke("D3,D1,D2 what?", U)
    bodies = [block.body for block in parse_context(model.prompts[0][0].content.rpartition("\n\n")[0])]
    assert bodies == [text_of(name) for name in ("D3", "D1", "D2")]


# --- de-duplication ------------------------------------------------------------------------------------------------


def test_a_history_that_we_did_not_write():  # D1
    history = MemoryHistory()
    history.add_messages([HumanMessage(f"{text_of('D1')}\n\nWhat is it?"), AIMessage("A fact.")])
    chat, model = chat_of(history=lambda session_id: history)
    chat.invoke("D1,D2 and?", U)
    last = model.prompts[0][-1].content
    assert last.startswith("Same text as in an earlier message.\n[Doc 1]\n===\n" + text_of("D2"))


def test_two_sessions_are_independent():  # D2
    chat, model = chat_of(instructions="Same.")
    for name in ("one", "two"):
        chat.invoke("D1,D2 what?", session_id=name)
    assert chatml(model.prompts[0]) == chatml(model.prompts[1])
    chat.invoke("D1 more?", session_id="two")
    chat.invoke("D9 more?", session_id="one")
    assert names_in(model.prompts[3][-1].content) == {"D9"}


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_what_the_application_cuts_away_is_sent_again(kept):  # D3
    history = MemoryHistory()
    chat, model = chat_of(history=lambda session_id: history)
    for names in ("D1,D2", "D3", "D4"):
        chat.invoke(f"{names} what?", U)
    messages = history.messages
    history.clear()
    history.add_messages([HumanMessage("In short: D1 and D2 were explained."), AIMessage("ok"), *messages[6 - kept :]])
    chat.invoke("D1,D3,D4 what?", U)
    before = set().union(*(names_in(message.content) for message in model.prompts[-1][:-1]))
    assert names_in(model.prompts[-1][-1].content) == {"D1", "D3", "D4"} - before
    assert before == {0: set(), 2: {"D4"}, 4: {"D3", "D4"}}[kept]


class SlidingWindow(MemoryHistory):
    """A store that keeps the last turn only, as many applications configure theirs."""

    def add_messages(self, messages):
        super().add_messages(messages)
        self._messages = self._messages[-2:]


class Summarising(MemoryHistory):
    """A store that replaces all but the last turn by a summary."""

    def add_messages(self, messages):
        super().add_messages(messages)
        if len(self._messages) > 2:
            self._messages = (HumanMessage("In short: they talked."), AIMessage("ok"), *self._messages[-2:])


@pytest.mark.parametrize("store", [SlidingWindow, Summarising])
def test_no_hint_dangles_when_the_store_forgets_by_itself(store):  # D3
    history = store()
    chat, model = chat_of(history=lambda session_id: history)
    for names in ("D1,D2", "D2,D1", "D3", "D1", "D2,D3,D1"):
        chat.invoke(f"{names} what?", U)
        prompt = model.prompts[-1]
        whole = "\n".join(str(message.content) for message in prompt)
        labels = re.findall(r"^\[Doc (\d+)\]$", whole, re.MULTILINE)
        assert set(re.findall(r"See \[Doc (\d+)\] above", whole)) <= set(labels)
        assert set(names.split(",")) <= set().union(*(names_in(str(message.content)) for message in prompt))


def test_other_messages_and_user_texts_stay_as_they_are():  # D4, D5
    others = [
        SystemMessage("Be brief."),
        HumanMessage(f"Rewrite a[1] {{x}} {text_of('D7')}"),
        AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "1"}]),
        ToolMessage('{"rows": ["1|a", "501|b"]}', tool_call_id="1"),
        AIMessage("done"),
    ]
    history = MemoryHistory()
    history.add_messages(others)
    chat, model = chat_of(history=lambda session_id: history, instructions="Be brief.")
    chat.invoke("D1 what?", U)
    assert model.prompts[0][:-1] == others


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_system_messages_of_a_history_stay_where_they_are_beside_the_instructions(how, place):
    history = MemoryHistory()
    others = [HumanMessage("one?"), AIMessage("1"), HumanMessage("two?"), AIMessage("2")]
    others.insert(place, SystemMessage("The user is a cook."))
    history.add_messages(others)
    chat, model = chat_of(history=lambda session_id: history, instructions="Be brief.")
    ask = asking(chat, how)
    ask("D1 what?", U)
    ask("D1,D2 what?", U)
    assert model.prompts[0][:-1] == [SystemMessage("Be brief."), *others]
    assert extending(model.prompts)
    assert names_in(model.prompts[1][-1].content) == {"D2"}
    assert [message.content for message in history.messages[:5]] == [message.content for message in others]
    chat.engine.check_integrity()


def test_a_full_window_drops_turns_and_no_system_message():
    history = MemoryHistory()
    chat, model = chat_of(history=lambda session_id: history, instructions="Be brief.", max_context_tokens=400)
    chat.invoke("D1,D2 what?", U)
    history.add_messages([SystemMessage("The user is a cook.")])
    for names in ("D3,D4", "D5,D6", "D7,D8"):
        chat.invoke(f"{names} what?", U)
    last = model.prompts[-1]
    assert [message.content for message in last[:2]] == ["Be brief.", "The user is a cook."]
    assert "D1" not in names_in(chatml(last))


def test_hints_are_short_and_literal():  # D6, D10
    long = "x" * 1000
    for template, line in (
        ("See [Doc {label}] above.", "See [Doc 1] above."),
        ("{a} {{label}} %s {0}", "{a} {1} %s {0}"),
    ):
        chat, model = chat_of(retriever=fixed(long), engine=ReuseEngine(EngineConfig(hint=template)))
        for _ in range(2):
            chat.invoke("what?", U)
        assert model.prompts[-1][-1].content == f"{line}\n\nwhat?"


def test_overlaps_are_sent_once():  # D7
    base = [f"Sentence {n} tells what only sentence {n} can tell about drawer {n * 13}." for n in range(30)]
    texts = {"a": " ".join(base[:15]), "b": " ".join(base[10:25]), "c": " ".join(base[10:25]) + " End."}
    chat, model = chat_of(retriever=RunnableLambda(lambda q: [Document(page_content=texts[q])]))
    for name in "abc":
        chat.invoke(name, U)
    final = chatml(model.prompts[-1])
    assert all(final.count(sentence) == 1 for sentence in base[:25])
    assert model.prompts[-1][-1].content.count("(see [Doc 2])") == 1


def test_a_long_history_costs_its_new_text_only():  # D8
    counted = []

    def count(text):
        counted.append(len(text))
        return estimate_tokens(text)

    texts = [" ".join(f"Line {n}-{m} of the long history." for m in range(320)) for n in range(70)]
    pages = iter(texts)
    retriever = RunnableLambda(lambda query: [Document(page_content=next(pages, text_of("D1")))])
    chat, model = chat_of(retriever=retriever, engine=ReuseEngine(token_counter=count))
    for _ in texts:
        chat.invoke("what?", U)
    counted.clear()
    chat.invoke("D1", U)
    assert len(chatml(model.prompts[-1])) > 700_000
    assert sum(counted) < 20_000  # of 700,000: the message of the last turn, and what is new


def test_only_what_is_visible_already():  # D9
    chat, model = chat_of()
    chat.invoke("D1,D2 what?", U)
    assert chat.invoke("D2,D1 and now?", U).content == "ok"
    assert model.prompts[-1][-1].content == "See [Doc 2] above.\nSee [Doc 1] above.\n\nD2,D1 and now?"


def test_nothing_found_is_a_question_alone():
    chat, model = chat_of(retriever=fixed())
    chat.invoke("what?", U)
    assert [message.content for message in model.prompts[0]] == ["what?"]


def test_braces_stay():  # S16
    text = "{context_str} {x} {{ %s " * 10
    chat, model = chat_of(retriever=fixed(text), instructions="{i}")
    for _ in range(2):
        chat.invoke("why {query_str}?", U)
    first, second = model.prompts[1][1].content, model.prompts[1][3].content
    assert text in first
    assert first.endswith("\n\nwhy {query_str}?")
    assert second == "See [Doc 1] above.\n\nwhy {query_str}?"


# --- a full window -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("store", ["ours", "given"])
def test_a_full_window_drops_whole_turns_and_leaves_no_dangling_hint(how, store):
    dice = random.Random(6)
    kept = MemoryHistory()
    options = {"history": lambda session_id: kept} if store == "given" else {}
    window = 900
    chat, model = chat_of(instructions="Be brief.", max_context_tokens=window, **options)
    ask = asking(chat, how)
    rewritten = 0
    for _ in range(25):
        names = dice.sample([f"D{n}" for n in range(1, 17)], 3)
        before = [m.content for m in chat.history("u")]
        ask(f"{','.join(names)} what?", U, max_tokens=40)
        prompt = model.prompts[-1]
        assert sum(4 + estimate_tokens(m.content) for m in prompt) <= window - 40
        assert prompt[0].content == "Be brief."
        assert resolved(prompt)[-1] == set(names)  # asserts, too, that every hint has its block before it
        assert prompt[1].type == "human"
        if [m.content for m in prompt[1:-1]] != before:
            rewritten += 1
            assert sum(4 + estimate_tokens(m.content) for m in prompt[:-1]) <= window / 2 + 8
            assert len(prompt) < len(before)
        assert chat.history("u")[:-1] == [*chat.history("u")[:-2], chat.history("u")[-2]]
        assert [m.content for m in chat.history("u")[:-1]] == [m.content for m in prompt[1:]]
    assert rewritten > 2
    chat.engine.check_integrity()
    assert chat.engine.stats().in_flight == 0


def test_kept_turns_are_planned_again_from_their_documents():
    chat, model = chat_of(max_context_tokens=500)
    for names in ("D1,D2", "D1,D2", "D1,D2", "D3,D4,D5"):
        chat.invoke(f"{names} what?", U)
    first = model.prompts[-1][0].content
    assert names_in(first) == {"D1", "D2"}
    assert first.startswith("[Doc 1]\n===")
    assert len(model.prompts[-1]) > 1


def test_one_question_too_large_is_sent_all_the_same():
    chat, model = chat_of(max_context_tokens=10)
    for _ in range(2):
        chat.invoke("D1,D2 what?", U)
    assert len(model.prompts[1]) == 1
    assert names_in(model.prompts[1][0].content) == {"D1", "D2"}


def test_what_the_model_reports_corrects_the_counter():
    def answer(messages):
        tokens = 3 * sum(4 + estimate_tokens(m.content) for m in messages)
        return AIMessage("ok", usage_metadata={"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1})

    sizes = {}
    for name, model in (("reports", Recorder(answer=answer)), ("silent", Recorder())):
        chat, model = chat_of(model, max_context_tokens=2_000)
        for number in range(1, 25):
            chat.invoke(f"D{number} what?", U)
        sizes[name] = max(sum(4 + estimate_tokens(m.content) for m in prompt) for prompt in model.prompts)
    assert 1_800 < sizes["silent"] <= 2_000
    assert 500 < sizes["reports"] <= 2_000 / 3


def test_with_a_renderer_kept_turns_keep_their_titles():
    engine = ReuseEngine(EngineConfig(renderer=lambda block: f"{block.title}\n{block.text}"))
    retriever = RunnableLambda(
        lambda q: [Document(page_content=text_of(n), metadata={"title": f"T-{n}"}) for n in q.split(",")]
    )
    chat, model = chat_of(retriever=retriever, engine=engine, max_context_tokens=400)
    for names in ("D1,D2", "D1", "D1", "D3,D4,D5"):
        chat.invoke(names, U)
    assert model.prompts[-1][0].content.startswith("[Doc 1]\n===\nT-D1\n")


@pytest.mark.parametrize("value", [0, -1, True, "5"])
def test_bad_values_are_refused(value):
    with pytest.raises(ConfigError, match="max_context_tokens=.*must be a whole number of at least 1"):
        chat_of(max_context_tokens=value)
    with pytest.raises(ConfigError, match="max_sessions=.*must be a whole number"):
        chat_of(max_sessions=value if value != 0 else 0)


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_failed_turn_leaves_everything_as_it_was(how):
    fail = []

    def answer(messages):
        if fail:
            raise OSError("429")
        return AIMessage("ok")

    chat, model = chat_of(Recorder(answer=answer))
    ask = asking(chat, how)
    ask("D1,D2 what?", U)
    history, cached = chat.history("u"), chat.engine.stats().cached_tokens
    fail.append(True)
    with pytest.raises(OSError, match="429"):
        ask("D2,D3 what?", U)
    assert chat.history("u") == history
    assert chat.engine.stats().abandoned == 1
    assert chat.engine.stats().cached_tokens == cached
    fail.clear()
    ask("D2,D3 what?", U)
    assert chatml(model.prompts[-1]) == chatml(model.prompts[-2])
    assert model.prompts[-1][-1].content.startswith("See [Doc 2] above.\n[Doc 3]\n===")


@pytest.mark.parametrize("how", HOWS)
def test_errors_of_the_retriever_come_through(how):
    def find(query):
        raise OSError("down")

    chat, model = chat_of(retriever=RunnableLambda(find))
    with pytest.raises(OSError, match="down"):
        asking(chat, how)("what?", U)
    assert chat.engine.stats().planned == 0
    assert chat.history("u") == []


def long_answers(**options):
    return chat_of(Recorder(answer=lambda messages: AIMessage("one two three")), **options)[0]


def ending(how, pieces):
    """Let a stream end in another thread or context."""
    with ThreadPoolExecutor(1) as pool:
        if how == "closed in a thread":
            pool.submit(pieces.close).result(20)
        elif how == "read in a thread":
            pool.submit(list, pieces).result(20)
        elif how == "read in contexts":
            for _ in range(2):
                contextvars.copy_context().run(next, pieces)
            contextvars.Context().run(list, pieces)
        else:
            contextvars.Context().run(pieces.close)


@pytest.mark.parametrize("how", ["closed in a thread", "read in a thread", "read in contexts", "closed in a context"])
def test_the_next_question_may_follow_a_stream_however_it_ended(how):
    chat = long_answers()
    pieces = chat.stream("D1 what?", U)
    next(pieces)
    ending(how, pieces)
    chat.invoke("D2 what?", U)
    assert len(chat.history("u")) == (4 if how.startswith("read") else 2)
    assert chat.engine.stats().in_flight == 0
    for _ in chat.stream("D3 what?", U):
        break  # dropped
    assert chat.invoke("D4 what?", U).content == "one two three"


@pytest.mark.parametrize("how", ["dropped", "dropped in a chain", "closed by a task", "read by a task"])
def test_the_next_question_may_follow_a_stream_of_tasks_however_it_ended(how):
    chat = long_answers()

    async def rest(pieces):
        return [piece async for piece in pieces]

    async def scenario():
        loop = asyncio.get_running_loop()
        if how.startswith("dropped"):
            asked = chat if how == "dropped" else chat | StrOutputParser()
            async for _ in asked.astream("D1 what?", U):
                break
            await chat.ainvoke("D2 what?", U)
            return
        pieces = chat.astream("D1 what?", U)
        await anext(pieces)
        ending = pieces.aclose() if "closed" in how else rest(pieces)
        task = loop.create_task(ending, context=contextvars.Context())
        await chat.ainvoke("D2 what?", U)
        await task

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert len(chat.history("u")) == (4 if "read" in how else 2)
    assert chat.engine.stats().in_flight == 0


def test_an_answer_that_is_not_read_to_its_end_is_no_turn():
    chat, model = chat_of(Recorder(answer=lambda messages: AIMessage("one two three")))
    pieces = chat.stream("D1 what?", U)
    assert next(pieces).content == "one "
    with pytest.raises(RequestError, match="session_id='u' has an answer that is still being streamed"):
        chat.invoke("D2 what?", U)
    pieces.close()
    assert chat.history("u") == []
    assert chat.engine.stats().committed == 1  # the model has had the prompt
    assert chat.invoke("D2 what?", U).content == "one two three"

    async def breaking():
        stream = chat.astream("D1 what?", U)
        await anext(stream)
        with pytest.raises(RequestError, match="still being streamed"):
            await chat.ainvoke("D2 what?", U)
        await stream.aclose()
        return await chat.ainvoke("D3 what?", U)

    assert asyncio.run(breaking()).content == "one two three"
    assert len(chat.history("u")) == 4


def test_tool_calls_are_returned_and_not_kept():
    call = {"name": "t", "args": {}, "id": "1", "type": "tool_call"}
    chat, model = chat_of(Recorder(answer=lambda messages: AIMessage("", tool_calls=[call])))
    assert chat.invoke("D1 what?", U).tool_calls == [call]
    assert chat.history("u") == []


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_an_answer_slower_than_the_engine_waits(how):
    now = [0.0]

    def answer(messages):
        now[0] += 100
        return AIMessage("ok")

    chat, model = chat_of(Recorder(answer=answer), engine=ReuseEngine(clock=lambda: now[0]))
    for names in ("D1,D2", "D2,D1", "D1,D3"):
        asking(chat, how)(f"{names} what?", U)
    assert extending(model.prompts)
    assert chatml(model.prompts[-1]).count(text_of("D1")) == 1


# --- histories -----------------------------------------------------------------------------------------------------


def test_a_stored_history_goes_on_after_a_restart():
    stored = []
    for names in ("D1,D2", "D3,D1", "D2,D4"):
        chat, model = chat_of(history=lambda session_id: Stored(stored))  # another process: its engine knows nothing
        chat.invoke(f"{names} what?", U)
    assert resolved(model.prompts[0]) == [{"D1", "D2"}, {"D1", "D3"}, {"D2", "D4"}]
    assert chatml(model.prompts[0]).count(text_of("D2")) == 1
    assert len(json.loads(stored[0])) == 6
    chat.engine.check_integrity()
    assert chat.engine.stats().in_flight == 0


@pytest.mark.parametrize("order", ["kept", "lost", "changed"])
def test_a_history_that_cannot_be_planned_again_as_it_was_loses_nothing(order):
    engine, stored = ReuseEngine(), []
    chat, _ = chat_of(engine=engine)
    chat.invoke("D2,D1 what?", session_id="other")
    chat, _ = chat_of(engine=engine, history=lambda session_id: Stored(stored))
    chat.invoke("D1,D2 what?", U)  # moved, with a note
    messages = json.loads(stored[0])
    kept = messages[0]["data"]["additional_kwargs"]["contextpilot"]
    assert kept["order"] == [1, 0]
    if order == "lost":
        del kept["order"]
    elif order == "changed":
        kept["order"] = [7, 7]
    stored[0] = json.dumps(messages)
    chat, model = chat_of(history=lambda session_id: Stored(stored))
    chat.invoke("D1,D3 what?", U)
    shown = {"D3"} if order == "kept" else {"D1", "D3"}
    assert names_in(model.prompts[0][-1].content) == shown
    assert ("See [Doc 2] above." in model.prompts[0][-1].content) == (order == "kept")
    assert chat.engine.check_integrity() is None


def test_a_long_pause_changes_nothing():
    now = [0.0]
    chat, model = chat_of(engine=ReuseEngine(clock=lambda: now[0]))
    for names in ("D1,D2", "D2,D3", "D1,D3"):
        chat.invoke(f"{names} what?", U)
        now[0] += 100_000
    assert extending(model.prompts)
    assert model.prompts[-1][-1].content == "See [Doc 1] above.\nSee [Doc 3] above.\n\nD1,D3 what?"


# --- at once -------------------------------------------------------------------------------------------------------


def test_200_items_of_20_sessions_at_once_are_those_of_a_sequential_run():
    dice = random.Random(12)
    rounds = [[",".join(dice.sample([f"D{n}" for n in range(1, 12)], 4)) for _ in range(20)] for _ in range(10)]
    configs = [{"configurable": {"session_id": f"s{n}"}} for n in range(20)]

    def run_all(at_once):
        chat, model = chat_of()
        for asked in rounds:
            if at_once:
                asyncio.run(chat.abatch([f"{names} what?" for names in asked], configs))
            else:
                for names, config in zip(asked, configs, strict=True):
                    chat.invoke(f"{names} what?", config)
        chat.engine.check_integrity()
        assert extending([chat.history("s0")[: 2 * n + 1] for n in range(10)])
        shown = []
        for number in range(20):
            history = chat.history(f"s{number}")
            hints = [message.content.count("See [Doc") for message in history[::2]]
            sent = [names_in(message.content) for message in history[::2]]
            shown.append((resolved(history), hints, sent))
        return shown

    assert run_all(True) == run_all(False)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_calls_of_one_session_wait_for_each_other(asynchronous):
    busy, most = [0], [0]

    def answer(messages):
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        time.sleep(0.005)
        busy[0] -= 1
        return AIMessage("ok")

    chat, model = chat_of(Recorder(answer=answer))
    questions = [f"D{n},D{n + 1} what?" for n in range(1, 21)]

    async def at_once():
        await chat.abatch(questions, U)

    asyncio.run(at_once()) if asynchronous else chat.batch(questions, U)
    assert most == [1]
    assert extending(model.prompts)
    assert len(chat.history("u")) == 40
    assert chat._locks._seats == {}


def test_documents_as_they_are():
    chat, model = chat_of(retriever=RunnableLambda(lambda q: [document("D1"), document("D1", source="other")]))
    chat.invoke("what?", U)
    assert model.prompts[0][-1].content.count(text_of("D1")) == 1
