"""Servers, and the clients and routers before them: each for threads and for tasks."""

import asyncio
from contextlib import ExitStack

import pytest

from tests.integrations.chat_server import chat_server


@pytest.fixture
def server():
    with chat_server() as running:
        yield running


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield [stack.enter_context(chat_server()) for _ in range(3)]


@pytest.fixture
def loop():
    running = asyncio.new_event_loop()
    yield running
    running.run_until_complete(running.shutdown_asyncgens())
    running.close()


@pytest.fixture(params=["sync", "async"])
def chat(request, server, loop):
    from tests.integrations.serving.client.faces import Face

    return Face(server, asynchronous=request.param == "async", loop=loop)


@pytest.fixture(params=["sync", "async"])
def route(request, servers, loop):
    """``route(2, ...)`` makes a router of the first two servers."""
    from tests.integrations.serving.client.faces import RouterFace

    return lambda number=2, **options: RouterFace(
        servers[:number], loop if request.param == "async" else None, **options
    )
