"""The chat clients against the real OpenAI client library and a real HTTP server (cases V6, V7)."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.errors import ConfigError, RequestError, RequestTypeError
from contextpilot_integrations.serving.client.client import AsyncContextPilotClient, ContextPilotClient
from contextpilot_integrations.session import session
from tests.conftest import require
from tests.integrations.chat_server import breaking_off, chat_server, good, refusing

openai, httpx = require("openai"), require("httpx")


def document(name: str, words: int = 60) -> str:
    return " ".join(f"{name}-{number}" for number in range(words))


TEA, MILK, SALT = document("tea"), document("milk"), document("salt")


@pytest.fixture
def server():
    with chat_server() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def chat(request, server):
    """One face for both clients: ``chat(blocks, query, ...)``, ``chat.stream(...)`` -> (pieces, stream)."""
    loop = asyncio.new_event_loop()
    yield Face(server, asynchronous=request.param == "async", loop=loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Face:
    def __init__(self, server, *, asynchronous=False, loop=None, max_retries=0, **options):
        self.asynchronous, self.loop = asynchronous, loop
        kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        self.openai = lambda: kind(base_url=server.base_url, api_key="-", max_retries=max_retries, timeout=10)
        client = AsyncContextPilotClient if asynchronous else ContextPilotClient
        self.client = client(self.openai(), model="m", **options)
        self.engine = self.client.engine

    def __call__(self, *args, **options):
        if not self.asynchronous:
            return self.client.chat(*args, **options)
        return self.loop.run_until_complete(self.client.chat(*args, **options))

    def stream(self, *args, **options):
        async def read(stream):
            return [piece async for piece in stream]

        stream = self.client.stream(*args, **options)
        return (self.loop.run_until_complete(read(stream)) if self.asynchronous else list(stream)), stream


def contents(messages):
    return [message["content"] for message in messages]


# --- answers -------------------------------------------------------------------------------------------------------


def test_an_answer_with_everything_around_it(chat, server):
    result = chat([TEA, MILK], "Is it good?", instructions="Be brief.")
    assert result.answer == "Hello there"
    assert result.message == {"role": "assistant", "content": "Hello there"}
    assert result.finish_reason == "stop"
    assert result.usage.cached_tokens == 64
    assert result.usage.prompt_tokens == 100
    assert result.ttft_ms > 0
    assert server.requests == [
        {
            "model": "m",
            "messages": [dict(message) for message in result.plan.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]
    assert result.plan.messages[0] == {"role": "system", "content": "Be brief."}
    assert "Is it good?" in result.plan.messages[1]["content"]


def test_time_to_first_token_is_that_of_the_first_text(server):
    ticks = iter([0.0, 1.0, 1.25])  # made, sent, first text: the empty first chunk asks for no time
    client = ContextPilotClient(Face(server).openai(), model="m", clock=lambda: next(ticks))
    assert client.chat([TEA], "?").ttft_ms == 250.0


def test_a_stream_yields_pieces_and_ends_with_the_result(chat):
    pieces, stream = chat.stream([TEA], "?")
    assert pieces == ["Hello", " there"]
    assert stream.result.answer == "Hello there"


def test_chat_returns_the_stream_when_asked(server):
    client = Face(server).client
    with client.chat([TEA], "?", stream=True) as stream:
        with pytest.raises(RequestError, match="read to its end"):
            _ = stream.result
        assert "".join(stream) == stream.result.answer == "Hello there"


def test_options_pass_through_untouched(chat, server):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    extra = {"cache_salt": "s", "top_k": 1}
    chat([TEA], "?", tools=tools, temperature=0.5, extra_body=extra, model="other", stream_options={"x": 1})
    sent = server.requests[0]
    assert sent["tools"] == tools
    assert (sent["temperature"], sent["cache_salt"], sent["top_k"], sent["model"]) == (0.5, "s", 1, "other")
    assert sent["stream_options"] == {"include_usage": True, "x": 1}


def test_tool_calls_are_put_together_and_stay_out_of_the_history(server):
    def behave(exchange):
        def call(**fields):
            return {"tool_calls": [{"index": 0, **fields}]}

        exchange.start()
        exchange.chunk(call(id="1", type="function", function={"name": "look", "arguments": '{"q"'}))
        exchange.chunk(call(function={"arguments": ": 1}"}))
        exchange.chunk({}, "tool_calls")
        exchange.end()

    server.script = [behave]
    face = Face(server)
    result = face([TEA], "?", session_id="u")
    expected = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
    assert result.message["tool_calls"] == [expected]
    assert result.ttft_ms > 0
    assert face.client.history("u") == ()


@pytest.mark.parametrize(("option", "fix"), [("messages", "give the question as query"), ("stream", r"use chat\(")])
def test_refuses_what_it_makes_itself(server, option, fix):
    with pytest.raises(RequestError, match=fix):
        Face(server).client.stream([TEA], "?", **{option: []})
    assert server.requests == []


def test_refused_requests_are_not_sent(chat, server):
    with pytest.raises(RequestTypeError, match="blocks must be a sequence"):
        chat(TEA, "?")
    assert server.requests == []
    assert chat.engine.stats().in_flight == 0


def test_blocks_may_come_from_a_generator(chat):
    assert chat((text for text in (TEA, MILK)), "?").plan.order == (0, 1)


def test_refuses_the_wrong_client(server):
    with pytest.raises(ConfigError, match="use AsyncContextPilotClient"):
        ContextPilotClient(Face(server, asynchronous=True).openai(), model="m")
    with pytest.raises(ConfigError, match="use ContextPilotClient"):
        AsyncContextPilotClient(Face(server).openai(), model="m")
    with pytest.raises(ConfigError, match=r"must be an openai\.OpenAI"):
        ContextPilotClient(object(), model="m")


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"model": ""}, "model=''"), ({"max_context_tokens": 0}, "at least 1"), ({"max_sessions": 0}, "at least 1")],
)
def test_refuses_bad_settings(server, options, rule):
    with pytest.raises(ConfigError, match=rule):
        ContextPilotClient(Face(server).openai(), **{"model": "m", **options})


# --- usage (V6) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        (None, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_tokens_details": None}, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
    ],
)
def test_unknown_usage_is_not_zero(chat, server, usage, cached):
    server.script = [good(usage=usage)]
    assert chat([TEA], "?").usage.cached_tokens == cached


def test_a_server_that_refuses_stream_options_is_asked_without_them(chat, server):
    def behave(exchange):
        refuse = "stream_options" in exchange.body
        (refusing(400, "unknown field") if refuse else good(timings={"cache_n": 5, "prompt_n": 1}))(exchange)

    server.script = [behave]
    first, second = chat([TEA], "?"), chat([TEA], "?")
    assert first.answer == "Hello there"
    assert first.usage.cached_tokens == second.usage.cached_tokens == 5
    assert ["stream_options" in request for request in server.requests] == [True, False, False]
    assert chat.engine.stats().committed == 2


# --- trouble (V7) --------------------------------------------------------------------------------------------------


def test_the_library_retries_by_itself(server):
    server.script = [refusing(429), refusing(500), good()]
    face = Face(server, max_retries=2)
    assert face([TEA], "?").answer == "Hello there"
    assert len(server.requests) == 3
    assert face.engine.stats().committed == 1


@pytest.mark.parametrize(
    ("status", "error"), [(429, "RateLimitError"), (500, "InternalServerError"), (400, "BadRequestError")]
)
def test_errors_come_through_and_nothing_counts_as_sent(chat, server, status, error):
    server.script = [refusing(status)]
    with pytest.raises(getattr(openai, error)):
        chat([TEA], "?", session_id="u")
    stats = chat.engine.stats()
    assert (stats.abandoned, stats.committed, stats.in_flight, stats.cached_tokens) == (1, 0, 0, 0)
    assert chat.client.history("u") == ()
    server.script = [good()]
    chat([TEA], "?", session_id="u")
    assert len(chat.client.history("u")) == 2


def test_a_failed_turn_leaves_what_the_history_shows(chat, server):
    server.script = [good(), refusing(500), good()]
    chat([TEA, MILK], "one", session_id="u")
    with pytest.raises(openai.InternalServerError):
        chat([MILK, SALT], "two", session_id="u")
    result = chat([MILK, SALT], "two", session_id="u")
    assert [hint.label for hint in result.plan.hints] == [2]
    assert "[Doc 3]" in result.plan.text


def test_an_endpoint_that_is_down(server):
    with chat_server() as gone:
        face = Face(gone)
    with pytest.raises(openai.APIConnectionError):
        face([TEA], "?")
    assert face.engine.stats().abandoned == 1


def test_an_endpoint_that_is_slow(server):
    release = threading.Event()
    server.script = [lambda exchange: (release.wait(10), exchange.hang_up())]
    face = Face(server)
    with pytest.raises(openai.APITimeoutError):
        face([TEA], "?", timeout=0.2)
    release.set()
    assert face.engine.stats().abandoned == 1


def test_an_answer_that_breaks_off_is_no_turn(chat, server):
    server.script = [good(), breaking_off("Hel"), good()]
    chat([TEA], "one", session_id="u")
    before = chat.client.history("u")
    with pytest.raises(Exception, match="(?i)connection|peer|incomplete|read") as caught:
        chat([MILK], "two", session_id="u")
    assert not isinstance(caught.value, AssertionError)
    assert chat.client.history("u") == before
    assert chat.engine.stats().committed == 2  # the prompt was sent: it is in the server's cache
    result = chat([MILK], "three", session_id="u")
    assert result.plan.messages[: len(before)] == before
    assert not result.plan.hints  # the broken turn is not in the messages, so its block is sent in full


def test_an_answer_that_stalls_is_no_turn(chat, server):
    release = threading.Event()

    def stall(exchange):
        exchange.start()
        exchange.chunk({"content": "Hel"})
        release.wait(10)
        exchange.hang_up()

    server.script = [stall, good()]
    with pytest.raises((openai.APITimeoutError, httpx.TimeoutException)):
        chat([TEA], "one", session_id="u", timeout=2)
    release.set()
    assert chat.client.history("u") == ()
    assert (chat.engine.stats().committed, chat.engine.stats().in_flight) == (1, 0)
    assert chat([TEA], "two", session_id="u").answer == "Hello there"  # nobody waits for the first for ever


def test_an_answer_that_ends_too_early_without_an_error_is_no_turn(chat, server):
    server.script = [breaking_off("Hel", chunked=False)]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer, result.finish_reason) == ("Hel", None)
    assert chat.client.history("u") == ()


def test_an_error_inside_the_stream(chat, server):
    def behave(exchange):
        exchange.start()
        exchange.chunk({"content": "Hel"})
        exchange.send('data: {"error": {"message": "out of memory"}}\n\n')
        exchange.end()

    server.script = [behave]
    with pytest.raises(openai.APIError, match="out of memory"):
        chat([TEA], "?", session_id="u")
    assert chat.client.history("u") == ()


# --- conversations -------------------------------------------------------------------------------------------------


def test_each_prompt_starts_with_all_of_the_one_before(chat, server):
    results = [chat(blocks, f"turn {n}", session_id="u", instructions="Sys.") for n, blocks in enumerate(TURNS)]
    for before, after in zip(results, results[1:], strict=False):
        head = (*before.plan.messages, before.message)
        assert after.plan.messages[: len(head)] == head
        assert len(after.plan.messages) == len(head) + 1
    assert [message["role"] for message in server.requests[-1]["messages"]][:3] == ["system", "user", "assistant"]
    assert [len(result.plan.hints) for result in results] == [0, 1, 2]
    assert TEA not in results[1].plan.messages[-1]["content"]


TURNS = [[TEA, MILK], [MILK, SALT], [SALT, TEA]]


def test_a_turn_whose_blocks_are_all_visible_still_has_a_prompt(chat):
    chat([TEA], "one", session_id="u")
    result = chat([TEA], "two", session_id="u")  # D9
    assert result.plan.text == "See [Doc 1] above."
    assert result.answer == "Hello there"


def test_sessions_and_namespaces_are_apart(chat):
    chat([TEA], "one", session_id="u")
    for other in ({"session_id": "v"}, {"session_id": "u", "namespace": "tenant"}, {}):  # D2
        result = chat([TEA], "one", **other)
        assert len(result.plan.messages) == 1
        assert not result.plan.hints
    assert len(chat.client.history("u")) == len(chat.client.history("u", namespace="tenant")) == 2


def test_the_session_may_come_from_around(chat):
    with session("u"):
        chat([TEA], "one")
        chat([TEA], "two", session_id="v")
    assert len(chat.client.history("u")) == len(chat.client.history("v")) == 2


def test_a_conversation_has_one_system_message(chat, server):
    chat([TEA], "one", session_id="u", instructions="Be brief.")
    with pytest.raises(RequestError, match="differ from the system message"):
        chat([TEA], "two", session_id="u", instructions="Be long.")
    for instructions in ("Be brief.", ""):
        messages = chat([TEA], "two", session_id="u", instructions=instructions).plan.messages
        assert [message["role"] for message in messages].count("system") == 1
    assert len(server.requests) == 3


def test_reset_forgets_one_session(chat):
    chat([TEA], "one", session_id="u")
    chat([TEA], "one", session_id="v")
    assert chat.client.reset("u") is True
    assert chat.client.reset("u") is False
    assert chat([TEA], "two", session_id="u").plan.hints == ()
    assert len(chat.client.history("v")) == 2


def test_the_least_recently_used_session_is_forgotten(server):
    face = Face(server, max_sessions=2)
    for name in ("a", "b", "a", "c"):
        face([TEA], "?", session_id=name)
    assert [len(face.client.history(name)) for name in "abc"] == [4, 0, 2]


def test_a_full_window_drops_the_oldest_turns_and_sends_their_blocks_again(server):
    face = Face(server, max_context_tokens=600, token_counter=lambda text: len(text.split()))
    server.script = [good(usage=None)]
    results = [face([document(name), TEA], f"turn {name}", session_id="u") for name in "abcdefghijk"]
    sizes = [sum(len(text.split()) for text in contents(result.plan.messages)) for result in results]
    assert max(sizes) <= 600
    cuts = [n for n in range(1, 11) if len(results[n].plan.messages) <= len(results[n - 1].plan.messages)]
    assert cuts  # the window was full at least once
    for n in cuts:
        history = results[n].plan.messages[:-1]
        assert sum(len(text.split()) for text in contents(history)) <= 300
        assert [message["role"] for message in history] == ["user", "assistant"] * (len(history) // 2)
        first = n - len(history) // 2  # whole turns, the last ones, each with its question and its document
        for turn, message in zip("abcdefghijk"[first:n], history[::2], strict=True):
            assert message["content"].endswith(f"turn {turn}")
            assert document(turn) in message["content"]
        # what was said above of a dropped document is said again in full: no hint names what is gone
        assert "See [Doc" not in "".join(contents(history[:1]))
    for result in results:
        shown = sum(TEA in text for text in contents(result.plan.messages))
        assert shown == 1  # never lost, never twice


def test_the_system_message_survives_a_full_window(server):
    face = Face(server, max_context_tokens=200, token_counter=lambda text: len(text.split()))
    server.script = [good(usage=None)]
    for name in "abcd":
        result = face([document(name)], "?", session_id="u", instructions="Keep me.")
    assert contents(result.plan.messages)[0] == "Keep me."


def test_the_window_follows_what_the_server_counts(server):
    """The server counts ten times what the counter does: the second turn fills the window already."""
    server.script = [good(usage={"prompt_tokens": 10 * 70, "completion_tokens": 1})]
    face = Face(server, max_context_tokens=1_000, token_counter=lambda text: len(text.split()))
    face([TEA], "?", session_id="u")
    assert len(face([MILK], "?", session_id="u").plan.messages) == 1


def test_the_answer_needs_room_too(server):
    server.script = [good(usage=None)]
    face = Face(server, max_context_tokens=250, token_counter=lambda text: len(text.split()))
    face([TEA], "?", session_id="u")
    assert len(face([MILK], "?", session_id="u", max_tokens=10).plan.messages) == 3
    assert len(face([SALT], "?", session_id="u", max_tokens=150).plan.messages) == 1


def test_a_failed_turn_does_not_cut_the_history(server):
    face = Face(server, max_context_tokens=100, token_counter=lambda text: len(text.split()))
    server.script = [good(usage=None), refusing(500), good(usage=None)]
    face([TEA], "?", session_id="u")
    before = face.client.history("u")
    with pytest.raises(openai.InternalServerError):
        face([MILK], "?", session_id="u")
    assert face.client.history("u") == before


# --- at the same time ----------------------------------------------------------------------------------------------


def test_calls_of_one_session_wait_for_each_other(server):
    face = Face(server)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: face([TEA, document(str(n))], f"turn {n}", session_id="u"), range(8)))
    by_length = sorted(results, key=lambda result: len(result.plan.messages))
    assert [len(result.plan.messages) for result in by_length] == list(range(1, 16, 2))
    for before, after in zip(by_length, by_length[1:], strict=False):
        assert after.plan.messages[: len(before.plan.messages)] == before.plan.messages
    face.engine.check_integrity()


def test_tasks_of_one_session_wait_for_each_other(server):
    face = Face(server, asynchronous=True)

    async def all_turns():
        return await asyncio.gather(*(face.client.chat([TEA], f"turn {n}", session_id="u") for n in range(5)))

    results = asyncio.run(all_turns())
    assert sorted(len(result.plan.messages) for result in results) == [1, 3, 5, 7, 9]


def test_other_sessions_do_not_wait(server):
    release, arrived = threading.Event(), threading.Event()

    def slow(exchange):
        arrived.set()
        release.wait(10)
        good()(exchange)

    server.script = [slow, good()]
    face = Face(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(face, [TEA], "?", session_id="slow")
        assert arrived.wait(10)
        assert face([TEA], "?", session_id="fast").answer == "Hello there"
        assert not waiting.done()
        release.set()
        assert waiting.result(10).answer == "Hello there"


def test_an_unread_stream_of_the_same_session_is_an_error_not_a_hang(server):
    face = Face(server)
    stream = face.client.stream([TEA], "one", session_id="u")
    next(stream)
    with pytest.raises(RequestError, match="still being streamed"):
        face([MILK], "two", session_id="u")
    stream.close()
    assert face.client.history("u") == ()
    assert len(face([MILK], "two", session_id="u").plan.messages) == 1


def test_an_unread_stream_of_the_same_task_is_an_error_not_a_hang(server):
    face = Face(server, asynchronous=True)

    async def talk():
        async with face.client.stream([TEA], "one", session_id="u") as stream:
            await anext(stream)
            with pytest.raises(RequestError, match="still being streamed"):
                await face.client.chat([MILK], "two", session_id="u")
        return await face.client.chat([MILK], "two", session_id="u")

    assert len(asyncio.run(talk()).plan.messages) == 1


def test_a_cancelled_call_frees_its_session(server):
    release = threading.Event()
    server.script = [lambda exchange: (release.wait(10), exchange.hang_up()), good()]
    face = Face(server, asynchronous=True)

    async def talk():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(face.client.chat([TEA], "one", session_id="u"), 0.2)
        release.set()
        return await face.client.chat([TEA], "two", session_id="u")

    assert asyncio.run(talk()).answer == "Hello there"
    assert face.engine.stats().abandoned == 1


def test_clients_may_share_an_engine(server):
    engine = ReuseEngine(EngineConfig(note="none"))
    first, second = Face(server, engine=engine), Face(server, engine=engine)
    first([TEA, MILK], "?")
    assert second([SALT, MILK, TEA], "?").plan.order == (2, 1, 0)
