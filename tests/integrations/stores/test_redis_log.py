"""The log in a real Redis: its commands, and what is left out of it or given up."""

import pytest

from contextpilot_core.journal import Entry, Reset
from tests.conftest import require

redis = require("redis")
require("msgspec")

from contextpilot_integrations.stores.redis_log import RedisLog, later  # noqa: E402
from tests.integrations.redis_stores import CONTRADICTION, agree, forge, stream, synchronized, wait_until  # noqa: E402


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


GARBAGE = [
    {"version": 1, "worker": "w", "number": 1, "kind": "inserted", "values": b"\x80"},
    {"version": "x"},
    {"nothing": 1},
    {"version": 3, "worker": b"\xff", "number": 1, "kind": "released", "values": b"\x80"},
    {"version": 3, "worker": "w", "number": 1, "kind": "moved", "values": b"\x80"},
    {"version": 3, "worker": "w", "number": 1, "kind": "reset", "values": b"\xc1\xc1"},
    {"version": 3, "worker": "w", "number": "one", "kind": "reset", "values": b"\x81\xa9namespace\xc0"},
    {"version": 3, "worker": "w", "number": 1, "kind": "inserted", "values": b"\x81\xa9namespace\x05"},
    {"version": 3, "worker": "w", "number": 1, "kind": "recorded", "values": CONTRADICTION},
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


def test_names_with_half_a_character_are_not_shared(worker):
    one, two = worker(), worker()
    one.engine.reset("\ud800")
    one.plan(0)
    assert agree(one, two)
    assert two.reuse(0) > 0


# -- the commands themselves


@pytest.fixture
def log(server):
    return RedisLog(server.client, "{contextpilot:test}")


def entries(*numbers, worker="w"):
    return [Entry(worker, number, Reset(f"n{number}")) for number in numbers]


def numbers(batch):
    return [entry.number for entry in batch.entries]


def begun(log, snapshot=b"state"):
    assert log.find() is None
    log.begin(snapshot)
    return log.find()


def test_a_log_begins_with_its_snapshot_and_the_first_to_begin_counts(server, log):
    found = begun(log)
    assert (found.snapshot, found.position) == (b"state", log.end(found.epoch))
    log.begin(b"another")
    assert log.find() == found
    assert len(server.client.keys("*")) == 3, "nothing stays of the second one"


def test_entries_come_back_in_order_with_the_time_of_the_log(server, log):
    found = begun(log)
    assert log.append(found.epoch, entries(1, 2))
    assert log.append(found.epoch, entries(7, worker="v"))
    batch = log.read(found.epoch, found.position, most=10)
    assert [(entry.worker, entry.number, entry.operation) for entry in batch.entries] == [
        ("w", 1, Reset("n1")),
        ("w", 2, Reset("n2")),
        ("v", 7, Reset("n7")),
    ]
    assert (batch.position, batch.full) == (log.end(found.epoch), False)
    assert batch.entries[-1].at == int(batch.position.split(b"-")[0]) / 1000
    assert abs(batch.entries[0].at - server.client.time()[0]) < 60


def test_reading_goes_on_where_it_ended(log):
    found = begun(log)
    log.append(found.epoch, entries(*range(1, 6)))
    first = log.read(found.epoch, found.position, most=2)
    second = log.read(found.epoch, first.position, most=4)
    last = log.read(found.epoch, second.position, most=3, wait=1)
    assert [numbers(batch) for batch in (first, second, last)] == [[1, 2], [3, 4, 5], []]
    assert [batch.full for batch in (first, second, last)] == [True, False, False]
    assert last.position == second.position == log.end(found.epoch)


def test_an_entry_that_is_not_understood_is_passed_by(log, server, caplog):
    found = begun(log)
    server.client.xadd(stream(server), {"version": 1})
    batch = log.read(found.epoch, found.position, most=10)
    assert (batch.entries, batch.position) == ((), log.end(found.epoch))
    assert "left out: entries of version 1 are unknown" in caplog.text


def test_a_later_snapshot_replaces_the_one_before_and_trims_what_that_one_held(server, log):
    found = begun(log)
    log.append(found.epoch, entries(1, 2, 3, 4))
    two = log.read(found.epoch, found.position, most=2).position
    four = log.end(found.epoch)
    log.save(found.epoch, b"two", two)
    assert (log.find().snapshot, log.find().position) == (b"two", two)
    assert numbers(log.read(found.epoch, found.position, most=10)) == [1, 2, 3, 4]
    log.save(found.epoch, b"four", four)
    log.save(found.epoch, b"again two", two)
    assert (log.find().snapshot, log.find().position) == (b"four", four)
    assert numbers(log.read(found.epoch, two, most=10)) == [3, 4]
    assert log.read(found.epoch, found.position, most=10) is None, "entries behind it were trimmed"
    assert server.client.xlen(stream(server)) == 3


def test_nothing_is_appended_to_a_log_that_is_gone_nor_read_from_it(server, log):
    found = begun(log)
    log.give_up(found.epoch)
    assert server.client.keys("*") == []
    assert not log.append(found.epoch, entries(1))
    log.save(found.epoch, b"late", b"1-1")
    assert log.read(found.epoch, found.position, most=1) is None
    assert log.end(found.epoch) is None
    assert log.find() is None
    assert server.client.keys("*") == []


def test_only_the_present_log_is_given_up(log, caplog):
    found = begun(log)
    log.give_up(b"another")
    assert log.find() == found
    assert "the log another in Redis is not whole: another one begins" in caplog.text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client, log, snapshot: client.delete(log),
        lambda client, log, snapshot: client.delete(snapshot),
        lambda client, log, snapshot: client.hdel(snapshot, "position"),
        lambda client, log, snapshot: client.hset(snapshot, "position", "1"),
        lambda client, log, snapshot: client.xtrim(log, minid="0-2", approximate=False),
        lambda client, log, snapshot: (
            client.xadd(log, {"version": 3}),
            client.xtrim(log, maxlen=1, approximate=False),
        ),
    ],
    ids=["no log", "no snapshot", "no position", "odd position", "empty", "trimmed past its snapshot"],
)
def test_what_is_not_whole_is_given_up_when_it_is_found(server, log, spoil):
    begun(log)
    (name,), (snapshot,) = server.client.keys("*:log"), server.client.keys("*:snapshot")
    spoil(server.client, name, snapshot)
    assert log.find() is None
    assert server.client.keys("*") == []


def test_positions_compare_as_numbers():
    assert later(b"10-0", b"9-5") and later(b"9-10", b"9-9")
    assert not later(b"9-9", b"9-9") and not later(b"9-9", b"10-0")
