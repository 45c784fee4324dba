"""Redis servers, and workers on them; what needs the package is imported when it is asked for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integrations.redis_server import RedisServer
    from tests.integrations.redis_stores import Worker


def start(folder: Path, *host: str) -> "RedisServer":
    from tests.integrations.redis_server import RedisServer

    server = RedisServer(folder, *host)
    server.start()
    return server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RedisServer]":
    server = start(tmp_path_factory.mktemp("redis"))
    yield server
    server.close()


@pytest.fixture
def server(shared_server: "RedisServer") -> "RedisServer":
    shared_server.client.flushall()
    return shared_server


@pytest.fixture
def own_server(tmp_path: Path) -> "Iterator[RedisServer]":
    server = start(tmp_path)
    yield server
    server.close()


@pytest.fixture
def worker(server: "RedisServer") -> "Iterator[Callable[..., Worker]]":
    from tests.integrations.redis_stores import Worker

    made: list[Worker] = []

    def make(*given: object, **options: object) -> Worker:
        made.append(Worker(*(given or (server,)), **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close(timeout=1)
