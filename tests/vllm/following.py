"""Prompts of token ids, the server's own word on them, and a mirror that follows its events."""

import random
import threading
import time
from contextlib import contextmanager

import zmq

from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_integrations.serving.events.subscriber import KVEventSubscriber

WAIT_SECONDS = 30.0


def prompt(seed, tokens):
    """Token ids that no other seed gives."""
    draw = random.Random(seed)
    return [draw.randrange(1000, 40_000) for _ in range(tokens)]


def ask(server, token_ids, *, salt=None, answer_tokens=1):
    """Send a prompt; return the cached tokens that the server reports, and the ids of its answer."""
    body = {"model": server.model, "prompt": token_ids, "max_tokens": answer_tokens, "temperature": 0}
    answer = server.post("/v1/completions", {**body, "cache_salt": salt, "ignore_eos": True, "return_token_ids": True})
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["token_ids"]


def forget_everything(server):
    """Empty the server's cache. It says so in its events with the next request only, so one is sent."""
    assert server.post("/reset_prefix_cache") == {"success": True}
    ask(server, prompt("after the reset", 8))


class Follower:
    """A mirror and its subscriber."""

    def __init__(self, server, mirror, subscriber):
        self.server, self.mirror, self.subscriber = server, mirror, subscriber

    def settle(self):
        """Wait until every batch that the server has published is in the mirror."""
        self.wait_until(lambda status: status.live and not replayed(self.server, status.last_sequence + 1))
        self.mirror.check_integrity()

    def wait_until(self, holds):
        """Wait until the subscriber's status is as it should be."""
        end = time.monotonic() + WAIT_SECONDS
        while not holds(self.subscriber.status):
            assert time.monotonic() < end, f"not in time: {self.subscriber.status}"
            time.sleep(0.02)

    def predict(self, token_ids, salt=None):
        self.settle()
        return self.mirror.cached_tokens(token_ids, salt=salt)


@contextmanager
def following(server, **options):
    """Follow the server's events; ``options`` of the subscriber replace the right ones."""
    mirror = KVMirror()
    options = {"endpoint": server.events_endpoint, "replay_endpoint": server.replay_endpoint, **options}
    with KVEventSubscriber(mirror=mirror, **options) as subscriber:
        yield Follower(server, mirror, subscriber)


def replayed(server, start):
    """The numbers of the server's batches from ``start`` on."""
    numbers = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(server.replay_endpoint)
        socket.send_multipart([b"", start.to_bytes(8, "big")])
        while socket.poll(int(1000 * WAIT_SECONDS)):
            number = int.from_bytes(socket.recv_multipart()[2], "big", signed=True)
            if number < 0:
                return numbers
            numbers.append(number)
    raise TimeoutError("the server did not answer a replay")


class LossyRelay:
    """Passes the server's events on to an endpoint of its own, unless told to lose them."""

    def __init__(self, server, folder):
        self.endpoint = f"ipc://{folder}/relay"
        self.lost = 0
        self._server = server
        self._lossy = False
        self._last = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        number = 0
        while self._last < 0:
            ask(self._server, prompt(f"does the relay hear it? {(number := number + 1)}", 40))
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    @contextmanager
    def losing(self):
        """Lose what the server publishes inside, no more and no less."""
        self._catch_up()
        self._lossy = True
        yield
        self._catch_up()
        self._lossy = False

    def _catch_up(self):
        end = time.monotonic() + WAIT_SECONDS
        while replayed(self._server, self._last + 1):
            assert time.monotonic() < end, f"the relay has seen batch {self._last} only"

    def _run(self):
        with zmq.Context() as context, context.socket(zmq.SUB) as source, context.socket(zmq.PUB) as target:
            source.subscribe(b"")
            source.connect(self._server.events_endpoint)
            target.bind(self.endpoint)
            while not self._stop.is_set():
                if not source.poll(20):
                    continue
                frames = source.recv_multipart()
                if self._lossy:
                    self.lost += 1
                else:
                    target.send_multipart(frames)
                self._last = int.from_bytes(frames[1], "big")
