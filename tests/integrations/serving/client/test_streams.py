"""Answers piece by piece: read, broken off, closed, with errors inside."""

import threading

import pytest

from contextpilot_core import RequestError
from tests.conftest import require
from tests.integrations.chat_server import breaking_off, good
from tests.integrations.serving.client.faces import (
    MILK,
    TEA,
    Face,
    RouterFace,
    openai,
)

httpx = require("httpx")


def test_a_stream_yields_pieces_and_ends_with_the_result(chat):
    pieces, stream = chat.stream([TEA], "?")
    assert pieces == ["Hello", " there"]
    assert stream.result.answer == "Hello there"


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


def test_an_unread_stream_of_the_same_session_is_an_error_not_a_hang(server):
    face = Face(server)
    stream = face.client.stream([TEA], "one", session_id="u")
    next(stream)
    with pytest.raises(RequestError, match="still being streamed"):
        face([MILK], "two", session_id="u")
    stream.close()
    assert face.client.history("u") == ()
    assert len(face([MILK], "two", session_id="u").plan.messages) == 1


def test_a_closed_stream_is_no_failure(servers):
    face = RouterFace(servers[:2])
    with face.router.stream([TEA], "?") as stream:
        next(stream)
    assert face.up == [True, True]
    face.check()
