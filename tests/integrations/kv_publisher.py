"""A publisher of cache events on real sockets, as vLLM and SGLang have one: PUB, and ROUTER for replay."""

import threading
import time
from collections import deque
from dataclasses import asdict

import msgspec
import zmq

from contextpilot_core.mirror.events import BlockStored
from contextpilot_integrations.serving.events.codec import _KINDS


def as_map(event):
    """The current form; what has a default is left out where it is absent."""
    fields = {name: value for name, value in asdict(event).items() if value is not None or name == "parent_block_hash"}
    return {"type": type(event).__name__, **fields}


def as_array(event):
    """The older form: by position, and as short as it may be."""
    kind = type(event).__name__
    fields = asdict(event) | {"kv_cache_spec_sliding_window": None}
    values = [fields[name] for name in _KINDS[kind][1]]
    while len(values) > (5 if isinstance(event, BlockStored) else 1) and values[-1] is None:
        values.pop()
    return [kind, *values]


def payload(events, form=as_map, rank=0):
    return msgspec.msgpack.encode([time.time(), [form(event) for event in events], rank])


class Publisher:
    """``replay`` is an endpoint or None; ``ring`` batches can be asked for again."""

    def __init__(self, endpoint, replay=None, *, ring=10_000, topic=b"kv", bind=True, old_replay=False):
        self.context = zmq.Context()
        self.context.setsockopt(zmq.IPV6, "[" in endpoint)
        self.socket = self.context.socket(zmq.PUB)
        (self.socket.bind if bind else self.socket.connect)(endpoint)
        self.topic, self.old_replay = topic, old_replay
        self.ring = deque(maxlen=ring)
        self.sequence = 0
        self.asked = []
        self.closing = threading.Event()
        self.thread = None
        if replay:
            router = self.context.socket(zmq.ROUTER)
            router.bind(replay)
            self.thread = threading.Thread(target=self.serve, args=(router,), daemon=True)
            self.thread.start()

    def serve(self, router):
        while not self.closing.is_set():
            if router.poll(20):
                client, _, start = router.recv_multipart()
                first = int.from_bytes(start, "big")
                self.asked.append(first)
                topic = [] if self.old_replay else [self.topic]
                for sequence, data in list(self.ring):
                    if sequence >= first:
                        router.send_multipart([client, b"", *topic, sequence.to_bytes(8, "big"), data])
                router.send_multipart([client, b"", *topic, (-1).to_bytes(8, "big", signed=True), b""])
        router.close(linger=0)

    def publish(self, events=(), *, data=None, lost=False, form=as_map):
        """One batch; ``lost``: it does not arrive, but stands in the ring."""
        data = payload(events, form) if data is None else data
        sequence, self.sequence = self.sequence, self.sequence + 1
        self.ring.append((sequence, data))
        if not lost:
            self.send(sequence, data)

    def send(self, sequence, data):
        self.socket.send_multipart([self.topic, sequence.to_bytes(8, "big"), data])

    def close(self):
        self.closing.set()
        if self.thread:
            self.thread.join()
        self.context.destroy(linger=200)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wait(condition, seconds=10.0):
    """Wait until ``condition()`` holds; fail with its last value otherwise."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"still {value!r} after {seconds} s"
        time.sleep(0.005)
    return value
