"""The client for tasks: sessions wait for each other, and are freed by whoever is cancelled."""

import asyncio
import threading

import pytest

from contextpilot_core import RequestError
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
