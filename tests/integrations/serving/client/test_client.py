"""The client for threads against the real OpenAI client library and a real HTTP server (cases V6, V7)."""

import threading

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_integrations.serving.client.client import ContextPilotClient
from tests.integrations.chat_server import chat_server, good, refusing
from tests.integrations.serving.client.faces import (
    MILK,
    SALT,
    TEA,
    Face,
    openai,
    openai_client,
)


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


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"model": ""}, "model=''"), ({"max_context_tokens": 0}, "at least 1"), ({"max_sessions": 0}, "at least 1")],
)
def test_refuses_bad_settings(server, options, rule):
    with pytest.raises(ConfigError, match=rule):
        ContextPilotClient(openai_client(server), **{"model": "m", **options})


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


def test_clients_may_share_an_engine(server):
    engine = ReuseEngine(EngineConfig(note="none"))
    first, second = Face(server, engine=engine), Face(server, engine=engine)
    first([TEA, MILK], "?")
    assert second([SALT, MILK, TEA], "?").plan.order == (2, 1, 0)
