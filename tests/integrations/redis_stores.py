"""Engines that share a view through a Redis server, in the process of the test. Needs redis and msgspec."""

import time
from collections.abc import Callable

from contextpilot_core import ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.journal.operations import Reset
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_integrations.stores import RedisStore
from contextpilot_integrations.stores.codec import encode_operation
from tests.integrations.redis_server import RedisServer
from tests.integrations.redis_worker import CONFIG, SECRET, TEXTS


class Worker:
    """An engine and its store in this process."""

    def __init__(
        self, server: RedisServer, config: EngineConfig = CONFIG, mirror: KVMirror | None = None, **options: object
    ) -> None:
        self.store = RedisStore(server.url, secret=SECRET, **options)
        self.engine = ReuseEngine(config, journal=self.store, mirror=mirror)

    @property
    def entries(self) -> int:
        return self.store._state.snapshot().entries

    def plan(self, *names: int, **options: object) -> list[int]:
        plan = self.engine.plan([TEXTS[name] for name in names], remember=False, **options)
        return [names[position] for position in plan.order]

    def reuse(self, *names: int) -> int:
        return self.engine.expected_reuse(ContextRequest(blocks=[TEXTS[name] for name in names]))


def synchronized(*workers: Worker) -> bool:
    return all([worker.store.synchronize(20) for _ in range(2) for worker in workers])


def agree(*workers: Worker) -> bool:
    return synchronized(*workers) and len({worker.store.digest() for worker in workers}) == 1


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def stream(server: RedisServer) -> bytes:
    found = [key for key in server.client.keys("*:log")]
    assert len(found) == 1
    return found[0]


CONTRADICTION = (
    b"\x85\xa9namespace\xa1n\xaarequest_id\xa1r\xa4path\x90\xa4keys\xc4\x00\xa4ends\x91\x01"  # one end, no block
)


def forge(server, name: str, number: int, operation: object = Reset("n")) -> None:
    """Write to the log under the name of a worker."""
    kind, values = encode_operation(operation)
    fields = {"version": 3, "worker": name, "number": number, "kind": kind, "values": values}
    server.client.xadd(stream(server), fields)
