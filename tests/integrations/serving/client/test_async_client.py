"""The client for tasks: sessions wait for each other, and are freed by whoever is cancelled."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from contextpilot_core import ConfigError, RequestError, ReuseEngine
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from tests.integrations.chat_server import good
from tests.integrations.serving.client.faces import (
    MILK,
    TEA,
    Face,
)


def test_tasks_of_one_session_wait_for_each_other(server):
    face = Face(server, asynchronous=True)

    async def all_turns():
        return await asyncio.gather(*(face.client.chat([TEA], f"turn {n}", session_id="u") for n in range(5)))

    results = asyncio.run(all_turns())
    assert sorted(len(result.plan.messages) for result in results) == [1, 3, 5, 7, 9]


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


def test_an_answer_that_is_given_up_lets_the_next_task_in(server):
    release = threading.Event()
    server.script = [lambda exchange: (release.wait(10), exchange.hang_up()), good()]
    face = Face(server, asynchronous=True)

    async def talk():
        first = asyncio.create_task(face.client.chat([TEA], "one", session_id="u"))
        while not server.requests:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(face.client.chat([TEA], "two", session_id="u"))
        await asyncio.sleep(0)
        first.cancel()
        result = await second
        release.set()
        return first.cancelled(), result

    cancelled, result = asyncio.run(talk())
    assert cancelled
    assert len(result.prompt) == 1
    assert (face.engine.stats().abandoned, face.engine.stats().in_flight) == (1, 0)


def test_a_task_that_is_given_up_while_it_waits_asks_nothing(server):
    face = Face(server, asynchronous=True)

    async def talk():
        async with face.client.stream([TEA], "one", session_id="u") as stream:
            await anext(stream)
            waiting = asyncio.create_task(face.client.chat([TEA], "two", session_id="u"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await stream.read()
        return await face.client.chat([TEA], "three", session_id="u")

    assert len(asyncio.run(talk()).prompt) == 3
    assert len(server.requests) == 2


def test_a_client_of_ones_own_may_stream_with_an_async_generator():
    closed = []

    class Own:
        class chat:
            class completions:
                @staticmethod
                async def create(**arguments):
                    return chunks()

    async def chunks():
        try:
            for text in ("so", " far", " so good"):
                choice = SimpleNamespace(delta=SimpleNamespace(content=text), finish_reason=None)
                yield SimpleNamespace(choices=[choice])
        finally:
            closed.append(True)

    async def talk():
        async with AsyncContextPilotClient(Own, model="m").stream([TEA], "?") as stream:
            first = await anext(stream)
        return first, list(closed)

    assert asyncio.run(talk()) == ("so", [True])


def test_the_engine_is_the_one_given_or_one_of_its_own(server):
    engine = ReuseEngine()
    assert Face(server, asynchronous=True, engine=engine).engine is engine
    assert Face(server, asynchronous=True).engine is not Face(server, asynchronous=True).engine


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_context_tokens": 0}, "at least 1"),
        ({"max_sessions": 0}, "max_sessions=0"),
        ({"max_wait_ms": -1}, "max_wait_ms=-1"),
    ],
)
def test_refuses_bad_settings(server, options, rule):
    with pytest.raises(ConfigError, match=rule):
        Face(server, asynchronous=True, **options)
