"""The two threads that keep a copy in step with the log in a real Redis, whatever goes wrong."""

import os
import re
import signal
import threading
import time

import pytest

from contextpilot_core import ReuseEngine
from contextpilot_core.journal.operations import Entry, Reset
from tests.conftest import require

redis = require("redis")
require("msgspec")

from contextpilot_integrations.stores import RedisStore  # noqa: E402
from tests.integrations.redis_stores import agree, forge, stream, synchronized, wait_until  # noqa: E402
from tests.integrations.redis_worker import CONFIG, SECRET, TEXTS  # noqa: E402


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
    with slow.engine._namespaces._lock:  # its reader has to wait
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


@pytest.mark.parametrize("place", ["deliver", "snapshot", "own_after"])
def test_no_error_ends_a_thread(worker, monkeypatch, caplog, place):
    one, two = worker(snapshot_every=1), worker()
    one.plan(0)
    assert synchronized(one, two)

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        target = one.store._state.log if place == "snapshot" else one.store._state
        patch.setattr(target, place, fails)
        one.plan(1)
        wait_until(lambda: "ZeroDivisionError" in caplog.text)
    one.plan(2)
    assert agree(one, two)
    assert [two.reuse(name) > 0 for name in (0, 1, 2)] == [True] * 3
    assert all(thread.is_alive() for thread in one.store._exchange._threads)


def test_a_snapshot_is_written_once_in_so_many_entries(server, worker, monkeypatch):
    one = worker(snapshot_every=10)
    log, saved = one.store._exchange._redis, []
    save = log.save
    monkeypatch.setattr(log, "save", lambda *given: (saved.append(given), save(*given)))
    for name in range(35):
        one.plan(name)
        assert synchronized(one)
    assert len(saved) == 3
    assert log.find().snapshot == saved[-1][1]


def test_closing_sends_what_waits_and_ends_both_threads(worker):
    one, two = worker(), worker()
    for name in range(30):
        one.plan(name)
    exchange = one.store._exchange
    one.store.close(timeout=20)
    assert not any(thread.is_alive() for thread in exchange._threads)
    assert synchronized(two)
    assert two.entries == 30
    assert not exchange.synchronize(0.01)


def returned(call, *given):
    """Return what a call returns; it may wait for Redis no longer than it was told to."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call(*given)), daemon=True)
    thread.start()
    thread.join(30)
    assert found, f"{call.__name__} waits on"
    return found[0]


POOLS = {
    "blocking": lambda url: redis.BlockingConnectionPool.from_url(url, max_connections=1, timeout=1),
    "blocking for ever": lambda url: redis.BlockingConnectionPool.from_url(url, max_connections=1, timeout=None),
    "plain": lambda url: redis.ConnectionPool.from_url(url, max_connections=1),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_one_connection_is_enough(server, worker, pool):
    store = RedisStore(redis.Redis(connection_pool=pool(server.url)), secret=SECRET)
    engine, other = ReuseEngine(CONFIG, journal=store), worker()
    for name in range(40):
        engine.plan([TEXTS[name]], remember=False)
    assert returned(store.synchronize, 20)
    assert agree(other)
    assert other.entries == 40
    other.plan(50)
    assert synchronized(other) and returned(store.synchronize, 20)
    assert store.digest() == other.store.digest()
    returned(store.close, 20)


@pytest.mark.parametrize("forbidden", ["xrevrange", "xadd", "get", "xrange", "evalsha hset"])
def test_a_user_without_rights_is_told_once_and_nobody_waits_on(server, caplog, forbidden):
    denied = " ".join(f"-{command}" for command in forbidden.split())
    server.client.execute_command("ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", *denied.split())
    store = RedisStore(server.url.replace("//", "//limited:x@"), secret=SECRET)
    engine = ReuseEngine(CONFIG, journal=store)
    engine.plan([TEXTS[0]], remember=False)
    assert not returned(store.synchronize, 1)
    assert not returned(store.synchronize, 0)
    wait_until(lambda: "NoPermissionError" in caplog.text)
    assert caplog.text.count("NoPermissionError") == 1
    returned(store.close, 1)
    server.client.execute_command("ACL", "DELUSER", "limited")


def test_a_worker_that_gets_its_rights_later_shares_what_it_did(server, worker, caplog):
    server.client.execute_command("ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-xadd")
    one = worker()
    assert synchronized(one)  # it begins the log
    store = RedisStore(server.url.replace("//", "//limited:x@"), secret=SECRET)
    engine = ReuseEngine(CONFIG, journal=store)
    engine.plan([TEXTS[0]], remember=False)
    wait_until(lambda: "cannot share its operations" in caplog.text)
    server.client.execute_command("ACL", "SETUSER", "limited", "+xadd")
    assert returned(store.synchronize, 20)
    assert synchronized(one) and one.reuse(0) > 0
    returned(store.close, 5)
    server.client.execute_command("ACL", "DELUSER", "limited")


def full(server):
    server.client.config_set("maxmemory", 1)


def roomy(server):
    server.client.config_set("maxmemory", 0)


def read_only(server):
    server.client.execute_command("REPLICAOF", "127.0.0.1", "1")


def writable(server):
    server.client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("begun", [True, False], ids=["a log is there", "no log yet"])
@pytest.mark.parametrize(
    ("refuse", "allow", "kind"), [(full, roomy, "OutOfMemory|OOM"), (read_only, writable, "ReadOnly")]
)
def test_a_server_that_takes_nothing_is_told_of_once_and_gets_everything_later(
    own_server, worker, caplog, refuse, allow, kind, begun
):
    if begun:
        worker(own_server).plan(50)
        assert synchronized(worker(own_server))
    refuse(own_server)
    one = worker(own_server)
    for name in range(20):
        one.plan(name)
    assert not one.store.synchronize(0.5)
    said = [
        record.message
        for record in caplog.records
        if re.search(f"worker {one.store._state.worker} .*({kind})", record.message)
    ]
    assert len(said) == 1
    assert one.plan(30, 0) == [0, 30]  # it plans on what it sent itself
    allow(own_server)
    two = worker(own_server)
    assert agree(one, two)
    assert all(two.reuse(name) > 0 for name in range(20))


def test_what_a_server_without_room_will_never_get_is_told(own_server, worker, caplog, monkeypatch):
    monkeypatch.setattr("contextpilot_core.journal.state._MOST_WAITING", 5)
    one = worker(own_server)
    assert synchronized(one)
    full(own_server)
    for name in range(20):
        one.plan(name)
    assert len([record for record in caplog.records if "the oldest are given up" in record.message]) == 1
    roomy(own_server)
    two = worker(own_server)
    assert agree(one, two)
    assert two.reuse(19) > 0 == two.reuse(0)


def test_a_log_that_never_ends_is_waited_for_up_to_where_it_was(server, worker):
    """Others append all the time: what was there at the time of the call is enough."""
    one = worker()
    one.plan(0)
    assert synchronized(one)
    full = threading.Event()

    def flood():
        number = 0
        while not full.is_set():
            number += 1
            forge(server, "somebody", number, Reset("nobody's"))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        one.plan(1)
        assert returned(one.store.synchronize, 20)
        late = RedisStore(server.url, secret=SECRET)
        ReuseEngine(CONFIG, journal=late)
        returned(late.close, 1)
        returned(one.store.close, 1)
    finally:
        full.set()
        thread.join()


@pytest.mark.parametrize("time_limit", [5.0, None])
def test_a_server_that_does_not_answer_is_not_waited_for(own_server, time_limit, caplog):
    store = RedisStore(redis.Redis(port=own_server.port, socket_timeout=time_limit), secret=SECRET)
    engine = ReuseEngine(CONFIG, journal=store)
    engine.plan([TEXTS[0]], remember=False)
    assert store.synchronize(20)
    exchange = store._exchange
    os.kill(own_server._process.pid, signal.SIGSTOP)
    try:
        assert engine.plan([TEXTS[1], TEXTS[0]], remember=False).order == (1, 0)
        assert not returned(store.synchronize, 0.2)
        returned(store.close, 0.5)
        assert not store._state._attached  # the engine plans alone, although the threads may still wait
        assert engine.plan([TEXTS[2], TEXTS[1]], remember=False).order
    finally:
        os.kill(own_server._process.pid, signal.SIGCONT)
    for thread in exchange._threads:
        thread.join(20)
        assert not thread.is_alive()
    assert "Traceback" not in caplog.text


def test_who_waits_is_told_of_the_closing(own_server, worker):
    own_server.kill()
    one, found = worker(own_server), []
    thread = threading.Thread(target=lambda: found.append(one.store.synchronize(600)))
    thread.start()
    wait_until(lambda: one.store._exchange._asked)
    one.store.close(1)
    thread.join(20)
    assert found == [False]
