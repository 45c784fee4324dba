"""Processes that share a view through a real Redis: equal copies, nothing lost, whatever happens to the server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require

require("redis")
require("msgspec")
from tests.integrations.redis_server import RedisServer  # noqa: E402
from tests.integrations.redis_stores import Worker, stream  # noqa: E402

ROOT = Path(__file__).parents[3]


class Process:
    """A worker in a process of its own."""

    def __init__(self, server: RedisServer, number: int, every: int = 300) -> None:
        command = [sys.executable, "-m", "tests.integrations.redis_worker", server.url, str(number), str(every)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def processes(own_server: RedisServer) -> Iterator[list[Process]]:
    started = [Process(own_server, number) for number in range(4)]
    for process in started:
        assert process.hear() == "ready\n"
    yield started
    for process in started:
        process.close()


def ask(processes: list[Process], line: str) -> list[dict[str, object]]:
    for process in processes:
        process.tell(line)
    return [json.loads(process.hear()) for process in processes]


def check_nothing_lost(processes: list[Process]) -> dict[str, object]:
    """All are equal, and every operation of every process is part of the state exactly once."""
    ask(processes, "sync")
    answers = ask(processes, "sync")
    assert all(answer["done"] for answer in answers)
    assert len({answer["digest"] for answer in answers}) == 1
    assert sorted(answers[0]["numbers"].values()) == sorted(answer["own"] for answer in answers)
    assert answers[0]["entries"] == sum(answer["own"] for answer in answers)
    return answers[0]


def test_four_processes_end_equal_and_nothing_is_lost(own_server, processes):
    planned = ask(processes, "go 500")
    assert sum(answer["planned"] for answer in planned) >= 2_000
    final = check_nothing_lost(processes)
    late = Worker(own_server)
    assert late.store.synchronize(20)
    assert late.store.digest() == final["digest"]
    assert own_server.client.xlen(stream(own_server)) < final["entries"]  # snapshots take the place of older entries
    late.store.close()


@pytest.mark.parametrize("data", ["kept", "lost"])
def test_redis_is_killed_half_way(own_server, processes, data):
    ask(processes, "go 200")
    for process in processes:
        process.tell("go 300")
    own_server.kill()  # some of them are in the middle of it
    assert [json.loads(process.hear())["planned"] >= 300 for process in processes] == [True] * 4
    assert all(answer["planned"] >= 350 for answer in ask(processes, "go 350"))  # nobody waits for Redis
    if data == "lost":
        own_server.wipe()
    own_server.start()
    planned = ask(processes, "go 500")
    assert sum(answer["planned"] for answer in planned) >= 2_000
    check_nothing_lost(processes)
