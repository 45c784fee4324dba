"""The shared state is a function of the log: entries count once, snapshots are whole, names are everyone's own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import EngineConfig, IntegrityError
from contextpilot_core.cache import Wanted
from contextpilot_core.journal.log_state import LoggedNamespace, LogState, rules
from contextpilot_core.journal.operations import Committed, Entry, Inserted, Operation, Released, Rendered, Reset
from contextpilot_core.prompt.memory import KnownRecord
from contextpilot_core.prompt.visible import MessageRecord

CONFIG = EngineConfig(cache_tokens=60, max_requests=6, max_messages=3, message_seconds=20)


def record(label: int) -> MessageRecord:
    return MessageRecord(((b"a", label),), frozenset({label}), frozenset(), label, ((b"a", 10),), ((label, 0, 3),))


def path(names: str) -> tuple[tuple[bytes, int], ...]:
    return tuple((name.encode(), 5 + ord(name) % 7) for name in names)


def log(*operations: Operation, worker: str = "w") -> list[Entry]:
    return [Entry(worker, number, operation, float(number)) for number, operation in enumerate(operations, 1)]


def followed(*entries: Entry, config: EngineConfig = CONFIG) -> LogState:
    state = LogState(config)
    for entry in entries:
        state.apply(entry)
    state.check_integrity()
    return state


def test_an_entry_that_comes_again_counts_once():
    entries = log(Inserted("n", "r1", path("abc")), Inserted("n", "r2", path("abd")), Released("n", "r1"))
    twice = followed(*entries[:2], entries[0], entries[1], entries[2], entries[0])
    assert twice.snapshot() == followed(*entries).snapshot()
    assert twice.apply(entries[2]) is None
    assert (twice.entries, dict(twice.numbers)) == (3, {"w": 3})


def test_operations_of_workers_are_counted_apart_and_may_leave_gaps():
    state = followed(Entry("a", 1, Reset(None)), Entry("b", 5, Reset(None)), Entry("a", 4, Reset("n")))
    assert state.snapshot().numbers == (("b", 5), ("a", 4))


def test_the_longest_silent_worker_is_forgotten_first(monkeypatch):
    monkeypatch.setattr("contextpilot_core.journal.log_state._MOST_WORKERS", 2)
    state = followed(*(Entry(worker, 1 + number, Reset(None)) for number, worker in enumerate("abac")))
    assert state.snapshot().numbers == (("a", 3), ("c", 4))


def test_the_first_tokens_of_a_block_stay_while_it_is_known():
    state = followed(*log(Inserted("n", "r1", ((b"a", 7),)), Inserted("n", "r2", ((b"a", 9), (b"b", 0)))))
    assert state.snapshot().namespaces[0].blocks == ((b"a", 7), (b"b", 1))


def test_namespaces_are_apart_and_have_their_quotas():
    config = EngineConfig(cache_tokens=60, quotas={"small": 20})
    inserted = [Inserted(name, "r", path("abcdefgh")[place : place + 2]) for name in ("small", "n") for place in (0, 4)]
    state = followed(*log(*inserted), config=config)
    assert state.namespaces["small"].view.tokens <= 20 < state.namespaces["n"].view.tokens + 20
    kept = followed(*log(*inserted, Reset("small")), config=config)
    assert [part.namespace for part in kept.snapshot().namespaces] == ["n"]


def test_a_namespace_begins_with_its_first_request():
    assert followed(*log(Released("n", "r"), Committed("n", "r", (b"k",)), Reset("n"))).namespaces == {}


def test_records_belong_to_requests_that_are_live():
    entries = log(
        Rendered("n", "r1", b"early", record(1)),
        Inserted("n", "r1", path("a")),
        Rendered("n", "r1", b"k", record(1)),
        Inserted("n", "r2", path("b")),
        Committed("n", "r2", (b"k", b"unknown")),
        Released("n", "r1"),
    )
    assert followed(*entries).snapshot().namespaces[0].records == (KnownRecord(b"k", record(1), 5.0, ("r2",)),)
    assert followed(*entries, Entry("x", 1, Released("n", "r2"))).snapshot().namespaces[0].records == ()


def test_records_grow_old_with_the_log():
    entries = log(Inserted("n", "r1", path("a")), Rendered("n", "r1", b"k", record(1)))
    young = [*entries, Entry("x", 1, Inserted("n", "r2", path("b")), at=21.0)]
    assert followed(*young).snapshot().namespaces[0].records
    assert (
        not followed(*young[:2], Entry("x", 1, Inserted("n", "r2", path("b")), at=22.1)).namespaces["n"].records.state()
    )
    back = followed(*young, Entry("x", 2, Reset("other"), at=3.0))
    assert back.snapshot().time == 21.0  # the log's time never goes back


def test_an_id_that_is_given_again_moves():
    state = followed(
        *log(Inserted("n", "r", path("ab")), Inserted("n", "r", path("cd")), Inserted("n", None, path("e")))
    )
    cache = state.snapshot().namespaces[0].cache
    assert len(cache.requests) == 1
    assert state.namespaces["n"].view.tokens == sum(tokens for _, tokens in path("cde"))


NAMES = st.text("abcdef", max_size=5)
IDS = st.sampled_from([f"r{number}" for number in range(8)])
KEYS = st.sampled_from([b"k1", b"k2", b"k3", b"k4", b"k5"])
NAMESPACES = st.sampled_from(["m", "n"])
OPERATIONS = st.one_of(
    st.builds(Inserted, NAMESPACES, st.none() | IDS, NAMES.map(path)),
    st.builds(Inserted, NAMESPACES, IDS, NAMES.map(path)),
    st.builds(Committed, NAMESPACES, IDS, st.lists(KEYS, max_size=3).map(tuple)),
    st.builds(Rendered, NAMESPACES, IDS, KEYS, st.builds(record, st.integers(1, 4))),
    st.builds(Released, NAMESPACES, IDS),
    st.builds(Reset, st.sampled_from([None, "m"])),
)


@settings(max_examples=200, deadline=None)
@given(before=st.lists(OPERATIONS, max_size=40), after=st.lists(OPERATIONS, max_size=20))
def test_a_restored_state_goes_on_like_the_one_it_was_taken_of(before, after):
    entries = log(*before, *after)
    original = followed(*entries[: len(before)])
    restored = LogState.restored(CONFIG, original.snapshot())
    assert restored.snapshot() == original.snapshot()
    for entry in entries[len(before) :]:
        assert list(original.apply(entry)) == list(restored.apply(entry))
        restored.check_integrity()
    assert restored.snapshot() == original.snapshot()
    for name in original.namespaces:
        assert longest(original.namespaces[name]) == longest(restored.namespaces[name])


def longest(logged: LoggedNamespace) -> list[bytes]:
    ids = [block for letter in b"abcdef" if (block := logged.blocks.find(bytes([letter]))) is not None]
    return [logged.blocks.digest(block) for block in logged.view.longest((), Wanted(ids, 64))]


def test_a_snapshot_that_contradicts_itself_is_refused():
    snapshot = followed(*log(Inserted("n", "r", path("ab")), Inserted("n", "s", path("ac")))).snapshot()
    part = snapshot.namespaces[0]
    for cache in (
        replace(part.cache, nodes=((7, (0,)),)),
        replace(part.cache, nodes=((-1, (9,)),)),
        replace(part.cache, recency=()),
        replace(part.cache, recency=((9, 1),)),
        replace(part.cache, requests=(("r", 9),)),
    ):
        with pytest.raises((LookupError, IntegrityError)):
            LogState.restored(CONFIG, replace(snapshot, namespaces=(replace(part, cache=cache),)))


def test_what_the_state_depends_on_is_told():
    assert rules(EngineConfig()) == rules(EngineConfig(strategy="paper", kv_block=1))
    assert len({rules(EngineConfig(quotas=quotas)) for quotas in (None, {"a": 1}, {"a": 2})}) == 3
    assert rules(EngineConfig(quotas={"a": 1, "b": 2})) == rules(EngineConfig(quotas={"b": 2, "a": 1}))


BOUNDED = EngineConfig(max_namespaces=3, max_bytes=40_000)
wide_steps = st.lists(
    st.one_of(
        st.builds(Inserted, st.sampled_from("nmop"), st.sampled_from(["r1", "r2"]), st.just(path("ab"))),
        st.builds(
            Rendered,
            st.sampled_from("nmop"),
            st.sampled_from(["r1", "r2"]),
            st.binary(min_size=1, max_size=1),
            st.integers(1, 2_000).map(lambda length: replace(record(1), pieces=((1, 0, length),))),
        ),
        st.builds(Reset, st.sampled_from([None, "n", "m"])),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(wide_steps, wide_steps)
def test_namespaces_and_their_bytes_are_bounded_by_the_log_alone(before, after):
    entries = log(*before, *after)
    state = followed(*entries, config=BOUNDED)
    assert len(state.namespaces) <= 3
    assert sum(each.records.size for each in state.namespaces.values()) <= BOUNDED.max_bytes
    restored = LogState.restored(BOUNDED, followed(*entries[: len(before)], config=BOUNDED).snapshot())
    for entry in entries[len(before) :]:
        restored.apply(entry)
    assert restored.snapshot() == state.snapshot()


def test_the_namespace_that_was_used_longest_ago_is_forgotten():
    first = [Inserted(name, "r1", path("a")) for name in "nmo"]
    state = followed(*log(*first, Released("n", "r9"), Inserted("p", "r1", path("a"))), config=BOUNDED)
    assert list(state.namespaces) == ["o", "n", "p"]
