"""One face for the clients of threads and of tasks, and one for the routers, before the server of the tests."""

import threading

from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.serving.client.router import AsyncReplicaRouter, ReplicaRouter
from tests.conftest import require
from tests.integrations.chat_server import good

openai = require("openai")


def document(name: str, words: int = 60) -> str:
    return " ".join(f"{name}-{number}" for number in range(words))


TEA, MILK, SALT, RICE = (document(name) for name in ("tea", "milk", "salt", "rice"))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT = {"type": "text", "text": "What is in this picture?"}


def contents(messages):
    return [message["content"] for message in messages]


def words(text: str) -> int:
    return len(text.split())


def openai_client(server, *, asynchronous=False, max_retries=0):
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return kind(base_url=server.base_url, api_key="-", max_retries=max_retries, timeout=10)


async def pieces_of(stream):
    return [piece async for piece in stream]


class Face:
    """``face(blocks, query, ...)`` answers; ``face.stream(...)`` returns the pieces and the stream."""

    def __init__(self, server, *, asynchronous=False, loop=None, max_retries=0, **options):
        self.asynchronous, self.loop = asynchronous, loop
        client = AsyncContextPilotClient if asynchronous else ContextPilotClient
        inner = openai_client(server, asynchronous=asynchronous, max_retries=max_retries)
        self.client = client(inner, model="m", **options)
        self.engine = self.client.engine

    def __call__(self, *args, **options):
        return self.waited(self.client.chat(*args, **options))

    def complete(self, *args, **options):
        return self.waited(self.client.complete(*args, **options))

    def stream(self, *args, **options):
        return self.read(self.client.stream(*args, **options))

    def stream_completion(self, *args, **options):
        return self.read(self.client.stream_completion(*args, **options))

    def waited(self, answer):
        return self.loop.run_until_complete(answer) if self.asynchronous else answer

    def read(self, stream):
        return (self.waited(pieces_of(stream)) if self.asynchronous else list(stream)), stream


class RouterFace:
    """As `Face`, for a router over several servers; its clock is moved by hand."""

    def __init__(self, servers, loop=None, **options):
        self.servers, self.loop, self.clock = servers, loop, ManualClock()
        clients = [openai_client(each, asynchronous=loop is not None) for each in servers]
        router = AsyncReplicaRouter if loop else ReplicaRouter
        self.router = router(clients, model="m", clock=self.clock, **options)

    def __call__(self, *args, **options):
        answer = self.router.chat(*args, **options)
        return self.loop.run_until_complete(answer) if self.loop else answer

    def complete(self, *args, **options):
        answer = self.router.complete(*args, **options)
        return self.loop.run_until_complete(answer) if self.loop else answer

    def stream(self, *args, **options):
        async def read(stream, pieces):
            async for piece in stream:
                pieces.append(piece)

        stream, pieces = self.router.stream(*args, **options), []
        try:
            if self.loop:
                self.loop.run_until_complete(read(stream, pieces))
            else:
                pieces.extend(stream)
        except Exception as error:  # noqa: BLE001 - what came before it is asked for, too
            return pieces, error
        return pieces, stream.result

    @property
    def counts(self):
        return [len(server.requests) for server in self.servers]

    @property
    def up(self):
        return [status.up for status in self.router.status()]

    def check(self):
        """Nothing is under way or in flight, and the engines are sound."""
        assert [status.outstanding for status in self.router.status()] == [0] * len(self.servers)
        for engine in self.router.engines:
            assert engine.stats().in_flight == 0
            engine.check_integrity()


def blocked(servers):
    """Let every server wait with its answers until the event is set."""
    release = threading.Event()
    for server in servers:
        server.script = [lambda exchange: (release.wait(20), good()(exchange))]
    return release


def wait_for(condition):
    pause = threading.Event()
    for _ in range(1_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never happened")
