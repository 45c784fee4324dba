"""What the client, LangChain's chat and LlamaIndex's chat engine do alike, in every way of asking them.

Real frameworks in front of fakes of model servers. What only one of them does stands in its own folder.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import AnswerError, ContextPilotError, EngineConfig, RequestError, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.session import session
from tests.integrations.chat_server import chat_server
from tests.integrations.three_chats import (
    KINDS,
    WAYS,
    WINDOW,
    LangChainTalk,
    LlamaIndexTalk,
    check_prompt,
    document,
    extends,
    words,
)

A, B, C, D, E = (document(name) for name in "abcde")
TURNS = [("one?", [A, B, C]), ("two?", [B, D]), ("three?", []), ("four?", [D, A, E]), ("five?", [C])]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

EACH = pytest.mark.parametrize(("kind", "way"), WAYS)
STREAMED = pytest.mark.parametrize(("kind", "way"), [each for each in WAYS if "stream" in each[1]])
COUNTING = pytest.mark.parametrize(("kind", "way"), [each for each in WAYS if each[0] != "llama_index"])
STORED = pytest.mark.parametrize(("kind", "way"), [each for each in WAYS if each[0] != "client"])
AWAITED = pytest.mark.parametrize(("kind", "way"), [each for each in WAYS if each[1].startswith("a")])


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


@pytest.fixture
def talk(server):
    made = []

    def make(kind, way=None, **options):
        made.append(KINDS[kind](way or KINDS[kind].ways[0], server, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def planned(turns):
    """The user messages of a conversation, from the engine alone."""
    engine, messages = ReuseEngine(), []
    for question, documents in turns:
        plan = engine.plan(documents, query=question, messages=messages)
        messages += [{"role": "user", "content": plan.message_text}, {"role": "assistant", "content": "ok"}]
    return [each["content"] for each in messages[::2]]


# --- what is sent --------------------------------------------------------------------------------------------------


@EACH
def test_a_conversation_has_the_same_user_messages_everywhere(kind, way, talk):
    chat = talk(kind, way)
    assert [chat.ask(*turn).strip() for turn in TURNS] == ["ok"] * len(TURNS)
    assert chat.users == planned(TURNS)
    assert [content for role, content in chat.prompts[-1] if role == "user"] == chat.users
    assert all(extends(later, earlier) for earlier, later in zip(chat.prompts, chat.prompts[1:], strict=False))
    assert chat.prompts[-1][0] == ("system", "Be brief.")
    assert check_prompt(chat.prompts[-1]) == [documents for _, documents in TURNS]
    chat.check()


@EACH
def test_an_answer_that_takes_longer_than_a_plan_may_be_in_flight(kind, way, talk):
    clock = ManualClock()
    chat = talk(kind, way, engine=ReuseEngine(clock=clock))

    def others_ask():
        clock.advance(chat.engine.config.in_flight_seconds + 1)
        for documents in ([C, B], [E, D], [B, A]):
            chat.engine.plan(documents, query="elsewhere")

    chat.model.meanwhile = others_ask
    for turn in TURNS:
        chat.ask(*turn)
        chat.check()
    assert all(extends(later, earlier) for earlier, later in zip(chat.prompts, chat.prompts[1:], strict=False))
    shown = check_prompt(chat.prompts[-1])
    assert [set(each) for each in shown] == [set(documents) for _, documents in TURNS]
    assert sum(content.count("See [Doc ") for content in chat.users) == 4


@pytest.mark.parametrize("forgets", ["time", "reset", "another engine", "evict"])
@EACH
def test_what_the_engine_forgot_is_known_again_by_the_next_question(kind, way, forgets, talk):
    clock = ManualClock()
    chat = talk(kind, way, engine=ReuseEngine(clock=clock))
    for number, turn in enumerate(TURNS):
        chat.ask(*turn)
        if number % 2 == 0:
            if forgets == "time":
                clock.advance(chat.engine.config.message_seconds + 1)
            elif forgets == "reset":
                chat.engine.reset()
            elif forgets == "evict":
                chat.engine.evict([f"r{n}" for n in range(50)])
            else:
                chat.use(ReuseEngine(clock=clock))
        chat.check()
    assert chat.users == planned(TURNS)
    assert check_prompt(chat.prompts[-1]) == [documents for _, documents in TURNS]


@EACH
def test_an_engine_that_forgets_while_a_question_is_answered(kind, way, talk):
    chat = talk(kind, way)
    chat.model.meanwhile = lambda: chat.engine.reset()
    for turn in TURNS:
        chat.ask(*turn)
        chat.check()
    assert chat.users == planned(TURNS)


@pytest.mark.parametrize("forgets", [False, True])
@EACH
def test_without_deduplication_labels_go_on_all_the_same(kind, way, forgets, talk):
    chat = talk(kind, way, engine=ReuseEngine(EngineConfig(dedup=False)))
    for turn in TURNS:
        chat.ask(*turn)
        if forgets:
            chat.engine.reset()
    assert check_prompt(chat.prompts[-1]) == [documents for _, documents in TURNS]
    assert "[Doc 9]" in chat.users[-1]


@EACH
def test_a_full_window_drops_the_oldest_turns_and_sends_their_documents_again(kind, way, talk):
    names = "abacadbabcbd"
    turns = [(f"turn {n}?", [document(name), document(names[n - 1])]) for n, name in enumerate(names)]
    chat, other = talk(kind, way, window=260), talk("client", window=260)
    before, cuts = [], 0
    for turn in turns:
        chat.ask(*turn)
        other.ask(*turn)
        prompt = chat.prompts[-1]
        assert sum(4 + words(content) for _, content in prompt) <= 260
        assert set(check_prompt(prompt)[-1]) == set(turn[1])
        if not extends(prompt, before):
            cuts += 1
            assert sum(4 + words(content) for _, content in prompt[1:-1]) <= 130
            kept = (len(prompt) - 2) // 2
            assert [content.rpartition("\n\n")[2] for _, content in prompt[1:-1:2]] == [
                content.rpartition("\n\n")[2] for _, content in before[-2 * kept + 1 :: 2]
            ]
        before = prompt
        chat.check()
    assert cuts > 1
    assert chat.users == other.users


# --- what goes wrong -----------------------------------------------------------------------------------------------


def tried(chat, question, documents, trouble):
    """Ask while the model is in trouble: the answer, or the error."""
    chat.model.trouble = trouble
    try:
        return chat.ask(question, documents)
    except Exception as error:  # noqa: BLE001 - each library has its own
        return error
    finally:
        chat.model.trouble = None


@EACH
def test_a_model_that_fails_leaves_no_trace(kind, way, talk):
    chat = talk(kind, way)
    assert isinstance(tried(chat, "first?", [E, A], "fails"), Exception)
    assert chat.history() == []
    for turn in TURNS:
        before, stats = chat.history(), chat.engine.stats()
        assert isinstance(tried(chat, "again?", [E, *turn[1]], "fails"), Exception)
        assert chat.history() == before
        assert chat.engine.stats().cached_tokens == stats.cached_tokens
        assert chat.engine.stats().committed == stats.committed
        chat.check()
        chat.ask(*turn)
    assert chat.users == planned(TURNS)


@STREAMED
def test_a_stream_that_breaks_off_was_sent_and_is_no_turn(kind, way, talk):
    chat = talk(kind, way)
    chat.ask(*TURNS[0])
    before = chat.history()
    error = tried(chat, *TURNS[1], "breaks")
    assert isinstance(error, Exception) and not isinstance(error, AssertionError)
    assert chat.history() == before
    assert chat.engine.stats().committed == 2  # the model has had the prompt
    chat.check()
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS)


@STREAMED
def test_a_stream_without_a_piece_is_no_turn(kind, way, talk):
    chat = talk(kind, way)
    chat.ask(*TURNS[0])
    before, cached = chat.history(), chat.engine.stats().cached_tokens
    error = tried(chat, *TURNS[1], "empty")
    assert isinstance(error, ValueError if kind == "langchain" else AnswerError), error  # LangChain's models refuse it
    assert chat.history() == before
    assert chat.engine.stats().cached_tokens == cached
    assert chat.engine.stats().committed == (2 if kind == "client" else 1)  # a server that accepts has the prompt
    chat.check()
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS)


@EACH
def test_an_answer_that_says_nothing_is_no_turn(kind, way, talk):
    """Servers refuse a history with an empty message, and so every later question."""
    chat = talk(kind, way)
    for turn in TURNS:
        before = chat.history()
        assert not isinstance(tried(chat, *turn, "silent"), Exception)
        assert chat.history() == before
        chat.ask(*turn)
    assert chat.users == planned(TURNS)
    assert all(content.strip() for prompt in chat.prompts for _, content in prompt)
    chat.check()


@AWAITED
def test_a_question_that_is_cancelled_leaves_no_trace(kind, way, talk):
    chat = talk(kind, way)
    chat.ask(*TURNS[0])
    before = chat.history()

    async def give_up():
        chat.model.gate.clear()
        task = asyncio.create_task(chat.aask(*TURNS[1]))
        while chat.engine.stats().in_flight == 0:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        if way == "astream_chat":  # the answer is written by a task of the framework
            chat.chat._writing.cancel()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert chat.loop.run_until_complete(give_up())
    chat.model.gate.set()
    assert chat.history() == before
    assert (chat.engine.stats().committed, chat.engine.stats().abandoned) == (1, 1)
    chat.check()
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS)


@EACH
def test_what_fails_in_one_conversation_does_not_show_in_another(kind, way, talk):
    engine = ReuseEngine()
    chat, other = talk(kind, way, engine=engine), talk(kind, way, engine=engine)
    for turn in TURNS:
        for trouble in ("fails", "breaks"):
            tried(other, "elsewhere?", turn[1], trouble)
        chat.ask(*turn)
    assert chat.users == planned(TURNS)
    assert other.history() == []
    chat.check()


class Failing:
    """Everything that a caller may hang on an engine, failing from the first answer on."""

    def __init__(self, model, error):
        self.model, self.error, self.clock = model, error, ManualClock()

    def fail(self):
        if self.model is not None and self.model.prompts:
            raise self.error

    def attached(self, stats):
        pass

    def planned(self, plan, seconds):
        self.fail()

    def observed(self, plan, observation):
        self.fail()

    def time(self):
        self.fail()
        return self.clock()


@EACH
@pytest.mark.parametrize("what", ["observer", "clock", "observe", "stats", "commit"])
@pytest.mark.parametrize("error", [ValueError("tea"), RecursionError(), KeyError(0), OSError("down")], ids=repr)
def test_what_fails_behind_an_answer_loses_neither_it_nor_its_turn(kind, way, what, error, talk):
    failing = Failing(None, error)
    options = {"observer": {"observer": failing}, "clock": {"clock": failing.time}}.get(what, {})
    engine = ReuseEngine(**({"clock": failing.clock} | options))
    chat = talk(kind, way, engine=engine)
    if what in ("observe", "stats", "commit"):
        right = getattr(engine, what)
        setattr(engine, what, lambda *given, **more: failing.fail() or right(*given, **more))
    failing.model = chat.model
    assert chat.ask(*TURNS[0]) == "ok"
    assert [role for role, _ in chat.history()] == ["user", "assistant"]
    failing.model = None
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS)
    check_prompt(chat.prompts[-1])
    chat.engine.check_integrity()


@EACH
def test_a_counter_that_fails_on_a_text_refuses_no_turn_for_it(kind, way, talk):
    """As real tokenizers do on the names of their special tokens: in a question, a document, an answer."""

    def count(text):
        if "<|endoftext|>" in text:
            raise ValueError("disallowed special token")
        return words(text)

    chat = talk(kind, way, count=count)
    chat.model.says = ("the end is <|endoftext|>",)
    turns = [("what is <|endoftext|>?", [A]), ("two?", [f"{B} <|endoftext|>"]), ("three?", [A])]
    for turn in turns:
        assert chat.ask(*turn) == "the end is <|endoftext|>"
    assert chat.users == planned(turns)
    chat.check()


@COUNTING
@pytest.mark.parametrize("answer", [10**400, -1, "many", None, 1.5, 10**5000], ids=lambda each: type(each).__name__)
def test_a_counter_that_says_nonsense_is_refused_before_anything_is_sent(kind, way, answer, talk):
    chat = talk(kind, way, count=lambda text: answer)
    error = tried(chat, *TURNS[0], None)
    assert isinstance(error, ContextPilotError) and "token_counter returned" in str(error)
    assert (chat.prompts, chat.history()) == ([], [])
    chat.check()


HALVES = {
    "a character in two pieces": (("tea \ud83d", "\ude00!"), "tea \U0001f600!"),
    "a half at the end": (("tea ", "\ud83d"), "tea \ufffd"),
    "a second half alone": (("\ude00", " tea"), "\ufffd tea"),
    "the wrong way round": (("\ude00\ud83d",), "\ufffd\ufffd"),
    "nothing but a half": (("\udfff",), "\ufffd"),
}


@EACH
@pytest.mark.parametrize(("pieces", "kept"), HALVES.values(), ids=HALVES)
def test_half_a_character_in_an_answer_stops_no_later_turn(kind, way, pieces, kept, talk):
    chat = talk(kind, way)
    chat.model.says = pieces
    answer = chat.ask(*TURNS[0])
    assert answer == ("".join(pieces) if chat.is_stream else kept)
    chat.model.says = ("ok",)
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.history()[1] == ("assistant", kept)
    assert chat.users == planned(TURNS)
    chat.check()


@EACH
def test_half_a_character_in_what_is_asked_about_is_mended_and_known_again(kind, way, talk):
    chat = talk(kind, way, instructions="Be \ud83d brief.")
    broken, mended = f"{document('x')} \ud83d", f"{document('x')} \ufffd"
    turns = [("why \ude00?", [broken, A]), ("and?", [A, broken, B]), ("so?", [mended])]
    for number, turn in enumerate(turns):
        chat.ask(*turn)
        if number == 1:
            chat.engine.reset()
    right = [("why \ufffd?", [mended, A]), ("and?", [A, mended, B]), ("so?", [mended])]
    assert chat.users == planned(right)
    assert chat.prompts[-1][0] == ("system", "Be \ufffd brief.")
    assert check_prompt(chat.prompts[-1]) == [documents for _, documents in right]
    chat.check()


@EACH
@pytest.mark.parametrize("lie", [10**15, 10**12, 10**6, 2**40 + 1, 0, 1, -5])
def test_a_report_that_cannot_be_drops_no_turn(kind, way, lie, talk):
    """The window is full at about 800 words, of which the conversation has 400."""
    chat = talk(kind, way, window=800)
    for number, turn in enumerate(TURNS):
        chat.model.reports = lie if number else 30
        chat.ask(*turn)
    assert chat.users == planned(TURNS)
    assert check_prompt(chat.prompts[-1]) == [documents for _, documents in TURNS]


@EACH
@pytest.mark.parametrize("after", ["the truth", "a lie"])
def test_a_report_that_can_be_counts_until_the_next_such(kind, way, after, talk):
    """The server has three times as many tokens as there are words: the window is full sooner."""
    chat = talk(kind, way, window=600)

    def reported():
        chat.model.reports = 3 * sum(4 + words(content) for _, content in chat.prompts[-1])

    for number, turn in enumerate(TURNS):
        chat.model.meanwhile = reported
        if number == 3 and after == "a lie":
            chat.model.meanwhile, chat.model.reports = lambda: None, 10**15
        chat.ask(*turn)
        assert 3 * sum(4 + words(content) for _, content in chat.prompts[-1]) <= 600
    assert len(chat.users) < len(TURNS)
    check_prompt(chat.prompts[-1])


@EACH
@pytest.mark.parametrize(
    "extra",
    [{"messages": []}, {"messages": None}, {"prompt": "x"}, {"stream": False}, {"model": "m"}, {"n": 3}, 5, "x", []],
    ids=str,
)
def test_an_extra_body_goes_around_nothing(kind, way, extra, talk):
    chat = talk(kind, way, extra=extra)
    assert isinstance(tried(chat, *TURNS[0], None), RequestError)
    assert (chat.prompts, chat.history()) == ([], [])
    chat.check()


@EACH
@pytest.mark.parametrize("question", ["", " ", "\n\t "])
def test_a_question_that_says_nothing_about_nothing_is_refused(kind, way, question, talk):
    chat = talk(kind, way)
    chat.ask(*TURNS[0])
    error = tried(chat, question, [], None)
    assert isinstance(error, RequestError) and "question is empty" in str(error)
    assert (len(chat.prompts), len(chat.history())) == (1, 2)
    chat.check()
    del chat.documents[question]
    for turn in TURNS[1:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS)


RECORD = {"query": "one?", "blocks": [{"text": A}], "order": [0], "tokens": 9, "base": "", "labels": [1]}
SPOILT = {
    "nothing": None,
    "a text": "contextpilot",
    "a list": [RECORD],
    "an empty mapping": {},
    "blocks that are none": {**RECORD, "blocks": [5, None]},
    "blocks of a text": {**RECORD, "blocks": "tea"},
    "an order of a text": {**RECORD, "order": "0"},
    "tokens that are none": {**RECORD, "tokens": float("nan")},
    "tokens of 400 digits": {**RECORD, "tokens": 10**400},
    "negative tokens": {**RECORD, "tokens": -1},
    "labels that are none": {**RECORD, "labels": [True, "x"]},
    "a frame of one": {**RECORD, "frame": ["a"]},
    "what is another message's": {**RECORD, "shown": "0" * 64},
}


@STORED
@pytest.mark.parametrize("record", SPOILT.values(), ids=SPOILT)
def test_a_message_with_a_spoilt_record_is_somebody_elses(kind, way, record, talk):
    """It is sent as it stands; what it shows may be named, and nothing that it shows is lost."""
    chat = talk(kind, way, window=900)
    for turn in TURNS[:2]:
        chat.ask(*turn)
    chat.model.reports = 300
    before = chat.users
    chat.spoil(record)
    for turn in TURNS[2:]:
        chat.ask(*turn)
        chat.check()
    assert chat.users[:2] == before
    assert all(extends(later, earlier) for earlier, later in zip(chat.prompts[2:], chat.prompts[3:], strict=False))
    text = "\n".join(content for _, content in chat.prompts[-1])
    assert all(each in text for each in (A, B, C, D, E))


# --- at the same time ----------------------------------------------------------------------------------------------


@EACH
def test_questions_of_one_conversation_wait_for_each_other(kind, way, talk):
    chat = talk(kind, way)
    chat.model.meanwhile = lambda: threading.Event().wait(0.005)
    turns = [(f"turn {n}?", [A, document(f"own-{n}")]) for n in range(6)]

    async def at_once():
        await asyncio.gather(*[chat.aask(*turn) for turn in turns])

    if chat.is_async:
        chat.loop.run_until_complete(at_once())
    else:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda turn: chat.ask(*turn), turns))
    assert chat.model.most_busy == 1
    assert len(chat.users) == 6
    assert all(extends(later, earlier) for earlier, later in zip(chat.prompts, chat.prompts[1:], strict=False))
    check_prompt(chat.prompts[-1])
    chat.check()


@AWAITED
def test_a_question_that_is_cancelled_while_it_waits_lets_the_others_go_on(kind, way, talk):
    chat = talk(kind, way)

    async def three():
        chat.model.gate.clear()
        tasks = []
        for turn in TURNS[:3]:
            tasks.append(asyncio.create_task(chat.aask(*turn)))
            await asyncio.sleep(0.02)
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        chat.model.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = chat.loop.run_until_complete(asyncio.wait_for(three(), 20))
    assert (first, third) == ("ok", "ok")
    assert isinstance(second, asyncio.CancelledError)
    assert chat.users == planned([TURNS[0], TURNS[2]])
    chat.check()


# --- sessions ------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
def test_a_turn_during_which_its_session_is_reset_does_not_come_back(kind, way, known, talk):
    chat = talk(kind, way)
    if known:
        chat.ask(*TURNS[0])
    answers = []
    chat.model.meanwhile = lambda: answers.append(chat.reset())
    assert chat.ask(*TURNS[1]) == "ok"
    assert (chat.history(), answers) == ([], [known])
    chat.model.meanwhile = lambda: None
    for turn in TURNS[2:]:
        chat.ask(*turn)
    assert chat.users == planned(TURNS[2:])
    chat.check()


@EACH
def test_who_waits_for_a_turn_that_is_reset_begins_anew(kind, way, talk):
    chat = talk(kind, way)
    chat.ask(*TURNS[0])
    chat.model.gate.clear()

    async def at_once():
        tasks = []
        for turn in TURNS[1:3]:
            tasks.append(asyncio.create_task(chat.aask(*turn)))
            await asyncio.sleep(0.02)
        then()
        await asyncio.gather(*tasks)

    def then():
        chat.reset()
        chat.model.gate.set()

    if chat.is_async:
        chat.loop.run_until_complete(asyncio.wait_for(at_once(), 20))
    else:
        with ThreadPoolExecutor(2) as pool:
            asked = []
            for turn in TURNS[1:3]:
                asked.append(pool.submit(chat.ask, *turn))
                threading.Event().wait(0.02)
            then()
            assert [each.result(20) for each in asked] == ["ok", "ok"]
    assert chat.users == planned(TURNS[2:3])
    chat.check()


@EACH
def test_reset_says_whether_there_was_a_history(kind, way, talk):
    chat = talk(kind, way)
    assert chat.reset() is False
    tried(chat, *TURNS[0], "fails")
    assert chat.reset() is False
    chat.ask(*TURNS[0])
    assert chat.reset() is True
    assert (chat.history(), chat.reset()) == ([], False)
    chat.ask(*TURNS[1])
    assert chat.users == planned([TURNS[1]])


@EACH
def test_the_nearest_name_of_a_session_counts(kind, way, talk):
    places = KINDS[kind].places
    for at in range(len(places) + 1):
        named = {place: place for place in places[at:]}
        chat = talk(kind, way, names=named)
        with session("around") if "around" in named else nullcontext():
            chat.ask("whose?", [A])
        assert chat.sessions == [places[at] if named else None]


# --- anything ------------------------------------------------------------------------------------------------------

POOL = [A, B, f"{document('a')} {document('f', 20)}", f"{document('g', 15)} {B}", document("h", 90), "tiny"]
"""Two end or begin as others do, one is longer than the rest, one shorter than any hint."""
ASK = st.tuples(
    st.just("ask"), st.lists(st.sampled_from(POOL), max_size=4, unique=True), st.sampled_from(["", "slow", "fails"])
)
FORGET = st.sampled_from(["time", "reset", "restart", "evict"])
CUT = st.tuples(st.just("cut"), st.lists(st.booleans(), min_size=14, max_size=14))
CONFIGS = st.sampled_from(
    [
        EngineConfig(),
        EngineConfig(kv_block=1),
        EngineConfig(kv_block=1, cache_tokens=100, note="full"),
        EngineConfig(dedup=False),
        EngineConfig(span_dedup=False, note="none"),
        EngineConfig(strategy="paper"),
    ]
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(ASK | FORGET | st.just("new"), min_size=3, max_size=12), config=CONFIGS, data=st.data())
def test_whatever_happens_all_three_stay_alike(steps, config, data, server):
    _all_alike(KINDS.values(), steps, config, data.draw(st.sampled_from([WINDOW, 400, 200])), server)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(ASK | FORGET | CUT, min_size=4, max_size=14), config=CONFIGS, data=st.data())
def test_whatever_an_application_cuts_nothing_dangles(steps, config, data, server):
    """Where a framework keeps the messages, the application may change them."""
    _all_alike((LangChainTalk, LlamaIndexTalk), steps, config, data.draw(st.sampled_from([WINDOW, 400])), server)


def _all_alike(kinds, steps, config, window, server):
    clock = ManualClock()
    chats = [kind(kind.ways[0], server, engine=ReuseEngine(config, clock=clock), window=window) for kind in kinds]
    for number, step in enumerate(steps):
        if step == "time":
            clock.advance(config.message_seconds + 1)
        for chat in chats:
            if step == "reset":
                chat.engine.reset()
            elif step == "restart":
                chat.use(ReuseEngine(config, clock=clock))
            elif step == "evict":
                chat.engine.evict([f"r{n}" for n in range(0, 60, 2)])
            elif step == "new":
                chat.reset()
            elif step[0] == "cut":
                turns = [turn for turn in range(len(chat.history()) // 2) if step[1][turn]]
                chat.cut([place for turn in turns for place in (2 * turn, 2 * turn + 1)])
            elif step[0] == "ask":
                _ask(chat, f"turn {number}?", *step[1:], clock)
            chat.check()
        assert all(chat.users == chats[0].users for chat in chats)


def _ask(chat, question, documents, how, clock):
    """Ask, and see that nothing is lost: each document is shown, named, or in part (a run that stands elsewhere)."""
    chat.model.meanwhile = lambda: clock.advance(61 if how == "slow" else 0)
    answer = tried(chat, question, documents, "fails" if how == "fails" else None)
    assert isinstance(answer, Exception) == (how == "fails"), answer
    prompt = chat.prompts[-1]
    shown, earlier = check_prompt(prompt)[-1], "\n\n".join(content for _, content in prompt[:-1])
    for text in documents:
        whole = text in shown or (None in shown and text in earlier)
        assert whole or any(body is not None and "(see [Doc" in body for body in shown), text
