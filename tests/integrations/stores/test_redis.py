"""Workers that share a view through a real Redis server: equal copies, nothing lost, whatever happens to the server."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextpilot_core import ConfigError, ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.journal.operations import Committed, Entry, Inserted, Recorded, Released, Rendered, Reset
from contextpilot_core.mirror.events import BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.prompt.visible import MessageRecord
from contextpilot_core.types import PromptTokens, Served
from tests.conftest import require
from tests.core.conftest import body

redis = require("redis")
require("msgspec")

from contextpilot_integrations.stores import RedisStore  # noqa: E402
from contextpilot_integrations.stores.codec import decode_operation, encode_operation  # noqa: E402
from tests.integrations.redis_server import RedisServer  # noqa: E402
from tests.integrations.redis_worker import CONFIG, SECRET, TEXTS  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.close()


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    shared_server.client.flushall()
    return shared_server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.close()


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
        plan = self.engine.plan([TEXTS[name] for name in names], **options)
        return [names[position] for position in plan.order]

    def reuse(self, *names: int) -> int:
        return self.engine.expected_reuse(ContextRequest(blocks=[TEXTS[name] for name in names]))


@pytest.fixture
def worker(server: RedisServer) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(*given: object, **options: object) -> Worker:
        made.append(Worker(*(given or (server,)), **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close(timeout=1)


def synchronized(*workers: Worker) -> bool:
    return all([worker.store.synchronize(20) for _ in range(2) for worker in workers])


def agree(*workers: Worker) -> bool:
    return synchronized(*workers) and len({worker.store.digest() for worker in workers}) == 1


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


# -- processes


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
    assert own_server.client.xlen(stream(own_server)) < 2 * 300 + 256 < final["entries"]
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


# -- in one process


def stream(server: RedisServer) -> bytes:
    found = [key for key in server.client.keys("*:log")]
    assert len(found) == 1
    return found[0]


def test_workers_plan_on_what_others_sent(worker):
    one, two = worker(), worker()
    one.plan(0, 1)
    assert synchronized(one, two)
    assert two.plan(2, 1, 0) == [0, 1, 2]
    first = one.engine.plan([TEXTS[5]], query="q")
    messages = [*first.messages, {"role": "assistant", "content": "a"}]
    assert agree(one, two)
    assert [hint.label for hint in two.engine.plan([TEXTS[5]], messages=messages).hints] == [1]


def test_workers_that_follow_events_know_the_kv_blocks_of_others(server, worker):
    """A prompt of 48 tokens, whose two blocks end with its KV blocks; the second worker has sent nothing."""
    ids = list(range(48))
    one, two = (worker(server, CONFIG, KVMirror(block_size=16)) for _ in range(2))
    assert synchronized(one, two)
    plan = one.engine.plan([TEXTS[0], TEXTS[1]])
    one.engine.observe(plan, Served(prompt_tokens=48, tokens=PromptTokens(token_ids=ids, start=0, ends=[16, 32])))
    assert agree(one, two)
    wait_until(lambda: two.engine._namespaces._known)
    view = two.engine._namespaces._known["default"].index.view
    assert view.on_truth
    assert two.reuse(0, 1) > 0  # its events may be late
    wait_until(lambda: two.reuse(0, 1) == 0)
    stored = BlockStored(block_hashes=(1, 2, 3), parent_block_hash=None, token_ids=tuple(ids), block_size=16)
    two.engine._reports._mirror.apply([stored])
    assert two.reuse(0, 1) > two.reuse(0) > 0
    log = b"".join(value for _, fields in server.client.xrange(stream(server)) for value in fields.values())
    keys = KVMirror(block_size=16).keys(ids)
    assert b"recorded" in log
    assert not any(key in log for key in keys)


def test_nothing_in_redis_tells_a_document(server, worker):
    one = worker(snapshot_every=1)
    assert synchronized(one)
    secret = body("do not tell", 40)
    plan = one.engine.plan([secret], query="a very private question")
    one.engine.plan([secret, TEXTS[0]], messages=plan.messages, query="r", commit=False)
    assert synchronized(one)
    log = [fields for _, fields in server.client.xrange(stream(server))]
    snapshot = server.client.hgetall(server.client.keys("*:snapshot")[0])
    stored = b"".join(value for fields in (*log, snapshot) for value in fields.values())
    for hidden in (b"do not tell", b"private", body_digest(secret), body_digest(plan.text), SECRET.encode()):
        assert hidden not in stored
    assert one.store.seal(body_digest(secret)) in stored
    assert SECRET not in repr(vars(one.store))


def test_other_rules_and_other_secrets_are_other_logs(server, worker):
    one, two = worker(), worker(server, EngineConfig(cache_tokens=777))
    three = RedisStore(server.url, secret="another secret for the tests")
    stranger = ReuseEngine(CONFIG, journal=three)
    one.plan(0)
    assert synchronized(one, two)
    assert three.synchronize()
    assert two.reuse(0) == 0 < one.reuse(0)
    assert stranger.expected_reuse(ContextRequest(blocks=[TEXTS[0]])) == 0
    three.close()


def test_the_log_is_trimmed_and_a_late_worker_equals_the_others(server, worker):
    one, two = worker(snapshot_every=20), worker(snapshot_every=20)
    for name in range(100):
        (one if name % 3 else two).plan(name, (name + 1) % 100)
        assert synchronized(one)
    assert agree(one, two)
    assert server.client.xlen(stream(server)) <= 2 * 20 + 1
    late = worker()
    assert agree(one, two, late)
    assert late.engine.stats().live_requests == 100


def test_a_slow_reader_takes_the_snapshot(server, worker, caplog):
    one, slow = worker(snapshot_every=10), worker(snapshot_every=10)
    assert agree(one, slow)
    with slow.engine._namespaces.lock:  # its reader has to wait
        for name in range(60):
            one.plan(name)
            assert one.store.synchronize()
    slow.plan(70)
    assert agree(one, slow)
    assert "missed a part" in caplog.text
    assert one.reuse(70) > 0


@pytest.mark.parametrize("lost", ["command", "reply"])
def test_a_lost_command_or_reply_counts_once(worker, monkeypatch, lost):
    one, two = worker(), worker()
    assert synchronized(one, two)
    log = one.store._exchange._redis
    append, calls = log.append, []

    def failing(epoch: bytes, entries: list[Entry]) -> bool:
        calls.append(entries)
        if len(calls) % 2:
            if lost == "reply":
                append(epoch, entries)
            raise redis.ConnectionError("the connection broke")
        return append(epoch, entries)

    monkeypatch.setattr(log, "append", failing)
    for name in range(10):
        one.plan(name)
        two.plan(name + 10)
    assert agree(one, two)
    assert one.entries == 20


def test_out_of_reach_a_worker_plans_on_and_says_so_once(own_server, worker, caplog):
    one, two = worker(own_server), worker(own_server)
    one.plan(0)
    assert synchronized(one, two)
    own_server.kill()
    wait_until(lambda: one.store._exchange._epoch is None)
    assert one.plan(2, 0) == [0, 2]
    assert not one.store.synchronize(0.05)
    time.sleep(0.3)
    assert len([record for record in caplog.records if "plans alone" in record.message]) == 2
    own_server.start()
    assert agree(one, two)
    assert two.reuse(0, 2) > two.reuse(0) > 0


def test_without_a_server_it_plans_alone_and_joins_later(own_server, worker):
    own_server.kill()
    one = worker(own_server)
    one.plan(0)
    assert one.reuse(0) > 0
    own_server.start()
    two = worker(own_server)
    assert agree(one, two)
    assert two.reuse(0) > 0


def test_data_that_vanish_under_a_running_server_come_back(server, worker):
    one, two = worker(), worker()
    for name in range(20):
        one.plan(name)
        two.plan(name + 20)
    assert synchronized(one, two)
    server.client.flushall()
    one.plan(50)
    wait_until(lambda: one.entries == two.entries == 41)
    assert agree(one, two)


@pytest.mark.parametrize("part", ["log", "snapshot"])
def test_a_log_that_is_not_whole_is_given_up(server, worker, part):
    one = worker()
    one.plan(0)
    assert synchronized(one)
    server.client.delete(*server.client.keys(f"*:{part}"))
    late = worker()
    late.plan(1)
    wait_until(lambda: one.reuse(1) and late.reuse(1) or (part == "snapshot" and late.reuse(1)))
    if part == "log":
        assert agree(one, late)


def test_a_snapshot_that_cannot_be_read_is_given_up(server, worker):
    one = worker()
    one.plan(0)
    assert synchronized(one)
    for value in (b"\xc1", b"\x80", b"x" * 40):
        server.client.hset(server.client.keys("*:snapshot")[0], "state", value)
        late = worker()
        late.plan(1)
        assert agree(one, late)
        assert one.reuse(1) > 0


CONTRADICTION = (
    b"\x85\xa9namespace\xa1n\xaarequest_id\xa1r\xa4path\x90\xa4keys\xc4\x00\xa4ends\x91\x01"  # one end, no block
)
GARBAGE = [
    {"version": 1, "worker": "w", "number": 1, "kind": "inserted", "values": b"\x80"},
    {"version": "x"},
    {"nothing": 1},
    {"version": 2, "worker": b"\xff", "number": 1, "kind": "released", "values": b"\x80"},
    {"version": 2, "worker": "w", "number": 1, "kind": "moved", "values": b"\x80"},
    {"version": 2, "worker": "w", "number": 1, "kind": "reset", "values": b"\xc1\xc1"},
    {"version": 2, "worker": "w", "number": "one", "kind": "reset", "values": b"\x81\xa9namespace\xc0"},
    {"version": 2, "worker": "w", "number": 1, "kind": "inserted", "values": b"\x81\xa9namespace\x05"},
    {"version": 2, "worker": "w", "number": 1, "kind": "recorded", "values": CONTRADICTION},
]


def test_entries_that_nobody_understands_are_left_out(server, worker, caplog):
    one = worker()
    one.plan(0)
    assert synchronized(one)
    for fields in GARBAGE:
        server.client.xadd(stream(server), fields)
    one.plan(1)
    late = worker()
    assert agree(one, late)
    assert one.entries == 2
    assert len([record for record in caplog.records if "left out" in record.message]) >= len(GARBAGE)


def forge(server, name: str, number: int, operation: object = Reset("n")) -> None:
    """Write to the log under the name of a worker."""
    kind, values = encode_operation(operation)
    fields = {"version": 2, "worker": name, "number": number, "kind": kind, "values": values}
    server.client.xadd(stream(server), fields)


@pytest.mark.parametrize("when", ["followed", "joined"])
def test_a_worker_whose_name_somebody_else_uses_goes_on_in_another_log(server, worker, when, monkeypatch):
    one, two = worker(), worker()
    one.plan(0)
    assert synchronized(one, two)
    before = stream(server)
    if when == "joined":  # the forged entry comes while it is away
        log = one.store._exchange._redis
        read = log.read
        monkeypatch.setattr(
            log, "read", lambda *_, **__: (forge(server, one.store._state.worker, 300_000_000), None)[1]
        )
        wait_until(lambda: server.client.xlen(before) > 2)
        monkeypatch.setattr(log, "read", read)
    else:
        forge(server, one.store._state.worker, 300_000_000)
    wait_until(lambda: not server.client.exists(before))
    one.plan(1)
    two.plan(2)
    assert agree(one, two)
    assert stream(server) != before
    assert [two.reuse(name) > 0 for name in (0, 1, 2)] == [True] * 3


def test_a_worker_with_an_unusable_number_is_left_out(server, worker):
    one, two = worker(snapshot_every=1), worker(snapshot_every=1)
    one.plan(0)
    assert synchronized(one, two)
    for number in (-1, 0, 1 << 63, 10**30):
        forge(server, "other", number)
    one.plan(1)
    assert agree(one, two)
    assert one.entries == 2


def test_a_snapshot_whose_position_was_spoiled_is_replaced(server, worker):
    one, two = worker(snapshot_every=5), worker(snapshot_every=5)
    one.plan(0)
    assert synchronized(one, two)
    key = server.client.keys("*:snapshot")[0]
    server.client.hset(key, "position", b"garbage")
    for name in range(1, 20):
        one.plan(name)
        assert one.store.synchronize()
    assert agree(one, two)
    assert server.client.hget(key, "position") != b"garbage"
    assert server.client.xlen(stream(server)) <= 2 * 5 + 1


@pytest.mark.parametrize("place", ["deliver", "snapshot", "own_after"])
def test_no_error_ends_a_thread(worker, monkeypatch, caplog, place):
    one, two = worker(snapshot_every=1), worker()
    one.plan(0)
    assert synchronized(one, two)

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        target = one.store._state._log if place == "snapshot" else one.store._state
        patch.setattr(target, place, fails)
        one.plan(1)
        wait_until(lambda: "ZeroDivisionError" in caplog.text)
    one.plan(2)
    assert agree(one, two)
    assert [two.reuse(name) > 0 for name in (0, 1, 2)] == [True] * 3
    assert all(thread.is_alive() for thread in one.store._exchange._threads)


def test_names_with_half_a_character_are_not_shared(worker):
    one, two = worker(), worker()
    one.engine.reset("\ud800")
    one.plan(0)
    assert agree(one, two)
    assert two.reuse(0) > 0


def test_after_closing_the_engine_plans_alone(worker):
    one, two = worker(), worker()
    one.plan(0)
    one.store.close()
    one.store.close()
    assert one.plan(1, 0) == [0, 1]
    assert synchronized(two)
    assert (two.reuse(0) > 0, two.reuse(1)) == (True, 0)


def test_a_client_of_the_callers_own_stays_open(server):
    client = redis.Redis.from_url(server.url)
    with RedisStore(client, secret=SECRET.encode()) as store:
        ReuseEngine(CONFIG, journal=store).plan([TEXTS[0]])
        assert store.synchronize()
    assert client.ping()
    client.close()


def test_what_cannot_work_is_refused(server):
    for wrong, message in [
        ({"secret": "short"}, "16 bytes"),
        ({"secret": 5}, "got int"),
        ({"snapshot_every": 0}, "snapshot_every=0"),
        ({"server": "mysql://x"}, "URL"),
        ({"server": 5}, "got int"),
        ({"server": redis.Redis(decode_responses=True)}, "decode_responses"),
    ]:
        with pytest.raises(ConfigError, match=message):
            RedisStore(**{"server": server.url, "secret": SECRET, **wrong})
    store = RedisStore(server.url, secret=SECRET)
    assert not store.synchronize(0)
    with pytest.raises(ConfigError, match="no engine"):
        store.digest()
    ReuseEngine(CONFIG, journal=store)
    with pytest.raises(ConfigError, match="one engine"):
        ReuseEngine(CONFIG, journal=store)
    store.close()
    with pytest.raises(ConfigError, match="one engine"):
        ReuseEngine(CONFIG, journal=store)


def test_a_store_says_that_it_does_not_survive_a_fork(worker, caplog, monkeypatch):
    one = worker()
    assert synchronized(one)
    monkeypatch.setattr("contextpilot_integrations.stores.redis.os.getpid", lambda: 1)
    with caplog.at_level(logging.ERROR):
        one.plan(0)
        one.plan(1)
    assert caplog.text.count("does not survive a fork") == 1


@pytest.mark.parametrize("package", ["redis", "msgspec"])
def test_an_absent_package_is_named(package):
    code = f"import sys; sys.modules[{package!r}] = None; import contextpilot_integrations.stores"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert 'pip install "contextpilot-rag[redis]"' in ended.stderr


RECORD = MessageRecord({b"\xff": 9, b"a": 1}, frozenset({9, 1}), frozenset({3}), 9, ((b"a", 7),), ((9, 0, 4),))
OPERATIONS = [
    Inserted("n", None, ((b"\xff", 3), (b"\x00", 1))),
    Inserted("", "r", ()),
    Committed("n", "r", (b"k",)),
    Rendered("n", "r", b"k", RECORD),
    Released("n", "r"),
    Recorded("n", "r", ((b"a", 3), (b"\xff", 1)), b"\x00\xff", (None, 7)),
    Reset("n"),
    Reset(None),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: type(operation).__name__)
def test_operations_are_the_same_after_their_way_through_bytes(operation):
    assert decode_operation(*encode_operation(operation)) == operation


def test_an_operation_that_contradicts_itself_is_not_read():
    with pytest.raises(ValueError, match="not of their types"):
        decode_operation("recorded", CONTRADICTION)
