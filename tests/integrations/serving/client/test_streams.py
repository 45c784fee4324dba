"""Answers piece by piece: read, broken off, closed, with errors inside."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import ContextBlock, RequestError
from tests.conftest import require
from tests.integrations.chat_server import breaking_off, good
from tests.integrations.serving.client.faces import (
    MILK,
    TEA,
    Face,
    RouterFace,
    contents,
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


def test_an_answer_that_was_shown_in_part_is_not_repeated(route):
    face = route(2)
    face.servers[0].script = [breaking_off("Hel"), good()]
    pieces, error = face.stream([TEA], "?", session_id="u")
    assert pieces == ["Hel"]
    assert isinstance(error, Exception) and not isinstance(error, AssertionError)
    assert face.servers[1].requests == []
    assert face.router.history("u") == ()
    assert face.up == [False, True]
    stats = face.router.engines[0].stats()
    assert (stats.committed, stats.abandoned) == (1, 0)  # the prompt was sent: it is in that server's cache
    pieces, result = face.stream([TEA], "?", session_id="u")
    assert (pieces, result.answer) == (["Hello", " there"], "Hello there")
    face.check()


def test_an_answer_that_nobody_has_seen_goes_on(route):
    face = route(2)
    face.servers[0].script = [breaking_off("Hel")]
    assert face([TEA], "?", session_id="u").answer == "Hello there"
    assert [message["content"] for message in face.router.history("u")][1:] == ["Hello there"]
    face.servers[1].script = [breaking_off()]
    face.servers[0].script = [good()]
    face.clock.advance(60)
    pieces, result = face.stream([MILK], "?", session_id="u")  # broke off before its first piece
    assert (pieces, result.answer) == (["Hello", " there"], "Hello there")
    face.check()


def test_a_closed_stream_is_no_failure(servers):
    face = RouterFace(servers[:2])
    with face.router.stream([TEA], "?") as stream:
        next(stream)
    assert face.up == [True, True]
    face.check()


# --- what a stream offers ------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_first_piece_is_asked_for(server):
    client = Face(server).client
    stream = client.stream([TEA], "?", session_id="u")
    stream.close()
    assert server.requests == []
    assert list(stream) == []
    assert client.engine.stats().in_flight == 0


def test_a_second_reading_yields_nothing_and_keeps_the_result(server):
    stream = Face(server).client.stream([TEA], "?")
    assert list(stream) == ["Hello", " there"]
    assert list(stream) == []
    assert stream.read() is stream.result
    assert len(server.requests) == 1


def test_reading_goes_on_where_it_was_left(server):
    stream = Face(server).client.stream([TEA], "?")
    assert next(stream) == "Hello"
    assert iter(stream) is stream
    assert list(stream) == [" there"]
    assert stream.result.answer == "Hello there"


def test_a_stream_has_its_sources_with_the_first_piece(server):
    server.script, client = [good(), good(), good()], Face(server).client
    client.chat([ContextBlock(text=TEA, id="tea")], "one", session_id="u")
    stream = client.stream([ContextBlock(text=MILK, id="milk"), TEA], "two", session_id="u")
    with pytest.raises(RequestError, match="first piece"):
        _ = stream.sources
    assert next(stream) == "Hello"
    assert {label: source.block.id for label, source in stream.sources.items()} == {1: "tea", 2: "milk"}
    assert stream.read().sources == stream.sources


def test_an_answer_without_a_piece_has_its_sources_at_its_end(server):
    server.script = [good("")]
    stream = Face(server).client.stream([TEA], "?")
    assert list(stream) == []
    assert [source.block.text for source in stream.sources.values()] == [TEA]


def test_read_returns_the_whole_answer_after_some_pieces(server):
    stream = Face(server).client.stream([TEA], "?")
    next(stream)
    assert stream.read().answer == "Hello there"


def test_a_stream_that_was_broken_off_has_no_result_and_is_no_turn(server):
    face = Face(server)
    with face.client.stream([TEA], "one", session_id="u") as stream:
        assert next(stream) == "Hello"
    with pytest.raises(RequestError, match="read to its end"):
        stream.read()
    assert face.client.history("u") == ()
    assert (face.engine.stats().committed, face.engine.stats().in_flight) == (1, 0)


def test_closing_after_the_end_changes_nothing(server):
    face = Face(server)
    with face.client.stream([TEA], "one", session_id="u") as stream:
        result = stream.read()
    stream.close()
    assert stream.result is result
    assert len(face.client.history("u")) == 2


def test_the_session_is_free_as_soon_as_the_result_is_there(server):
    face = Face(server)
    stream = face.client.stream([TEA], "one", session_id="u")
    stream.read()
    assert len(face([TEA], "two", session_id="u").prompt) == 3


def test_a_callers_error_inside_with_comes_through_and_frees_the_session(server):
    face = Face(server)
    with pytest.raises(ValueError, match="mine"), face.client.stream([TEA], "one", session_id="u") as stream:
        next(stream)
        raise ValueError("mine")
    assert face([TEA], "two", session_id="u").answer == "Hello there"


def test_pieces_before_an_error_are_shown_and_nothing_comes_after_it(server):
    face = Face(server)
    server.script = [breaking_off("Hel"), good()]
    stream = face.client.stream([TEA], "one", session_id="u")
    assert next(stream) == "Hel"
    with pytest.raises((httpx.TransportError, openai.APIError)):
        next(stream)
    assert list(stream) == []
    assert face([TEA], "two", session_id="u").answer == "Hello there"


def test_a_stream_may_be_read_by_another_thread_than_began_it(server):
    face = Face(server)
    stream = face.client.stream([TEA], "one", session_id="u")
    assert next(stream) == "Hello"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(list, stream).result(10) == [" there"]
    assert len(face.client.history("u")) == 2


def test_a_stream_of_tasks_offers_the_same(server, loop):
    face = Face(server, asynchronous=True, loop=loop)

    async def talk():
        unread = face.client.stream([TEA], "zero", session_id="u")
        await unread.close()
        async with face.client.stream([TEA], "one", session_id="u") as stream:
            assert await anext(stream) == "Hello"
        with pytest.raises(RequestError, match="read to its end"):
            await stream.read()
        whole = face.client.stream([TEA], "two", session_id="u")
        assert aiter(whole) is whole
        with pytest.raises(RequestError, match="first piece"):
            _ = whole.sources
        assert await anext(whole) == "Hello"
        assert [source.block.text for source in whole.sources.values()] == [TEA]
        result = await whole.read()
        assert [piece async for piece in whole] == []
        return result, whole.result

    first, again = loop.run_until_complete(talk())
    assert first is again
    assert first.answer == "Hello there"
    assert len(server.requests) == 2
    assert contents(face.client.history("u"))[1:] == ["Hello there"]


# --- streams that end elsewhere, and the next question at once -----------------------------------------------------

MANY = good(*[f"{number} " for number in range(40)])


@pytest.mark.parametrize(
    "how", ["dropped", "closed in a thread", "read in a thread", "read by a thread", "in contexts"]
)
def test_the_next_question_may_follow_a_stream_however_it_ended(server, how):
    server.script, face = [MANY], Face(server)

    def begun():
        stream = face.client.stream([TEA], "one", session_id="u")
        assert next(stream) == "0 "
        return stream

    with ThreadPoolExecutor(1) as pool:
        if how == "dropped":
            for _ in face.client.stream([TEA], "one", session_id="u"):
                break
        elif how == "closed in a thread":
            pool.submit(begun().close).result(20)
        elif how == "read in a thread":
            assert pool.submit(begun().read).result(20).answer
        elif how == "read by a thread":
            pool.submit(begun().read)  # it may not even have begun when the next question comes
        else:
            stream = begun()
            contextvars.copy_context().run(next, stream)
            contextvars.Context().run(stream.read)
        result = face([MILK], "two", session_id="u")
    whole = how not in ("dropped", "closed in a thread")
    assert len(result.prompt) == (3 if whole else 1)
    assert (face.engine.stats().committed, face.engine.stats().in_flight) == (2, 0)


@pytest.mark.parametrize("how", ["dropped", "dropped in a generator", "closed by a task", "read by a task"])
def test_the_next_question_may_follow_a_stream_of_tasks_however_it_ended(server, loop, how):
    server.script, face = [MANY], Face(server, asynchronous=True, loop=loop)

    async def passed_on():
        async for piece in face.client.stream([TEA], "one", session_id="u"):
            yield piece

    async def scenario():
        if how.startswith("dropped"):
            stream = passed_on() if "generator" in how else face.client.stream([TEA], "one", session_id="u")
            async for _ in stream:
                break
            del stream
            return await face.client.chat([MILK], "two", session_id="u")
        stream = face.client.stream([TEA], "one", session_id="u")
        await anext(stream)
        ending = stream.close() if "closed" in how else stream.read()
        task = loop.create_task(ending, context=contextvars.Context())
        result = await face.client.chat([MILK], "two", session_id="u")
        await task
        return result

    result = loop.run_until_complete(asyncio.wait_for(scenario(), 20))
    assert len(result.prompt) == (3 if "read" in how else 1)
    assert (face.engine.stats().committed, face.engine.stats().in_flight) == (2, 0)


def test_a_stream_whose_event_loop_is_gone_holds_up_nobody(server):
    server.script, gone = [MANY], asyncio.new_event_loop()
    face = Face(server, asynchronous=True, loop=gone)
    stream = face.client.stream([TEA], "one", session_id="u")
    assert gone.run_until_complete(anext(stream)) == "0 "
    gone.close()

    async def next_one():
        kept = stream  # not even dropped
        result = await face.client.chat([MILK], "two", session_id="u")
        return result, kept

    result, _ = asyncio.run(asyncio.wait_for(next_one(), 20))
    assert len(result.prompt) == 1


def test_a_stream_of_a_session_that_was_reset_ends_and_does_not_come_back(server):
    face = Face(server)
    face([TEA], "one", session_id="u")
    stream = face.client.stream([MILK], "two", session_id="u")
    next(stream)
    assert face.client.reset("u") is True
    assert stream.read().answer == "Hello there"
    assert face.client.history("u") == ()
    assert face.client.last_plan("u") is None
    assert len(face([TEA], "three", session_id="u").prompt) == 1
