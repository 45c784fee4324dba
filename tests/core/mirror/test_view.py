"""Planning on what the engine holds, and on the estimate when that is not known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.view import SETTLE_SECONDS, TruthView
from contextpilot_core.testing import ManualClock

PATIENCE = 60.0


class Held(set):
    """The KV blocks that the engine caches."""

    moment = 0

    def holds(self, keys):
        return self.issuperset(keys)

    def update(self, keys):
        super().update(keys)
        self.moment += 1

    def difference_update(self, keys):
        super().difference_update(keys)
        self.moment += 1


class Fixture:
    def __init__(self, capacity=1000, max_requests=100):
        self.blocks, self.clock = BlockTable(), ManualClock()
        self.held, self.believed = Held(), True
        for number in range(6):
            self.blocks.intern(bytes([number]), lambda: 10)
        self.view = TruthView(
            CacheView(self.blocks, capacity=capacity, max_requests=max_requests),
            self.blocks,
            self.held,
            lambda: self.believed,
            max_requests=max_requests,
            patience=PATIENCE,
            clock=self.clock,
        )

    def send(self, name, path, stored=True):
        """Admit, record and (unless not ``stored``) cache a path: one KV block per block, the context is all of it."""
        self.view.admit(path, name)
        keys = keys_of(path)
        assert self.view.record(name, len(path), keys, range(len(path) + 1))
        if stored:
            self.held.update(keys)

    def check(self):
        self.view.check_integrity()
        references = self.view.references()
        self.blocks.check_integrity({number: 1 + references[number] for number in range(6)})


def keys_of(path):
    return tuple(repr(path[: depth + 1]).encode() for depth in range(len(path)))


def test_before_the_first_record_the_estimate_answers():
    it = Fixture()
    it.view.admit((1, 2), "a")
    assert not it.view.on_truth
    assert it.view.cached_blocks((1, 2, 3)) == 2


def test_an_evicted_head_is_not_chased_and_a_cached_one_is():
    it = Fixture(capacity=20)
    it.send("a", (1, 2))
    it.send("b", (3, 4))  # the estimate drops (1, 2) for it
    it.clock.advance(SETTLE_SECONDS)
    assert it.view.on_truth
    assert it.view.longest((), Wanted((1, 2, 3, 4), 64)) in ((1, 2), (3, 4))
    it.held.difference_update(keys_of((3, 4)))
    assert it.view.cached_blocks((3, 4)) == 0
    assert it.view.longest((), Wanted((1, 2, 3, 4), 64)) == (1, 2)
    it.believed = False
    assert it.view.longest((), Wanted((1, 2, 3, 4), 64)) == (3, 4)
    it.check()


def test_a_request_in_flight_counts_as_cached_until_its_time_is_over():
    it = Fixture()
    it.send("a", (1,))
    it.view.admit((2, 3), "b")
    assert it.view.cached_blocks((2, 3)) == 2
    assert it.view.longest((), Wanted((1, 2, 3), 64)) == (2, 3)
    it.clock.advance(PATIENCE)
    it.view.admit((4,), "c")
    assert it.view.cached_blocks((2, 3)) == 0
    it.check()


def test_the_usual_path_is_the_estimates_where_it_differs():
    it = Fixture()
    it.view.admit((1, 2, 3), "a")
    assert it.view.usual((), Wanted((3, 2, 1), 64)) == ()
    it.send("b", (1, 4), stored=False)
    it.clock.advance(PATIENCE)
    assert it.view.usual((), Wanted((3, 2, 1), 64)) == (1, 2, 3)
    assert it.view.longest((), Wanted((4, 1), 64)) == ()


def test_an_answer_may_take_long():
    it = Fixture()
    it.send("a", (1,))
    it.view.admit((2, 3), "b")
    it.clock.advance(PATIENCE)
    assert it.view.cached_blocks((2, 3)) == 0
    it.check()
    assert it.view.record("b", 2, keys_of((2, 3)), [0, 1, 2])
    it.held.update(keys_of((2, 3)))
    it.clock.advance(SETTLE_SECONDS)
    assert it.view.cached_blocks((2, 3)) == 2
    it.check()


def test_when_nobody_tells_tokens_any_more_the_estimate_answers(caplog):
    it = Fixture()
    it.send("a", (1,))
    for number in range(20):
        assert it.view.on_truth
        it.view.admit((2, 3), f"silent {number}")
        it.clock.advance(PATIENCE)
        it.view.cached_blocks((2, 3))
    assert not it.view.on_truth
    assert caplog.text.count("planning on the estimate") == 1
    it.send("b", (5,))
    assert it.view.on_truth
    it.check()
    for name in [f"silent {number}" for number in range(20)]:
        it.view.release(name)
    it.check()


def test_events_may_come_a_little_after_the_response():
    it = Fixture()
    it.send("a", (1, 2), stored=False)
    assert it.view.cached_blocks((1, 2)) == 2
    it.clock.advance(SETTLE_SECONDS)
    assert it.view.cached_blocks((1, 2)) == 0
    it.check()


def test_the_head_takes_the_kv_blocks_before_the_context():
    it = Fixture()
    it.view.admit((0, 1, 2), "a")
    it.view.record("a", 1, (b"x", b"y", b"z"), [2, 3])
    it.clock.advance(SETTLE_SECONDS)
    it.held.update((b"x", b"y"))
    assert it.view.cached_blocks((0, 1, 2)) == 2
    it.held.difference_update((b"x",))
    assert it.view.cached_blocks((0, 1, 2)) == 0


@pytest.mark.parametrize("counts", [[], [0], [None, None, 2], [0, 1, 2, 3, 4]])
def test_counts_may_be_missing_or_go_on(counts):
    it = Fixture()
    it.view.admit((1, 2), "a")
    assert it.view.record("a", 2, keys_of((1, 2)), counts)
    it.check()


def test_nobody_waits_for_a_second_record_or_an_unknown_request():
    it = Fixture()
    it.send("a", (1, 2))
    assert not it.view.record("a", 2, keys_of((1, 2)), [0, 1, 2])
    assert not it.view.record("b", 2, keys_of((1, 2)), [0, 1, 2])


def test_released_requests_leave_nothing_behind():
    it = Fixture()
    it.send("a", (1, 2))
    it.view.admit((2, 3), "b")
    it.view.admit((), "c")
    for name in "abc":
        assert it.view.release(name) is not None
    assert it.view.release("a") is None
    assert not it.view.references()
    it.check()


def test_what_another_process_sent_is_learnt():
    it, there = Fixture(), Fixture()
    there.view.admit((0, 1, 2), "a")
    located = there.view.record("a", 2, (b"x", b"y", b"z"), [1, 2, 3])
    it.view.learn("a", located)
    assert it.view.on_truth
    assert it.view.cached_blocks((0, 1, 2)) == 3  # its events may take a moment
    it.clock.advance(SETTLE_SECONDS)
    it.held.update((b"x", b"y"))
    assert it.view.cached_blocks((0, 1, 2)) == 2
    assert not it.view.holds("a")  # it is live where it was planned
    assert it.view.release("a") == 0
    assert it.view.release("a") is None
    it.check()


def test_use_is_known_where_something_is_cached():
    it = Fixture()
    it.view.admit((1, 2), "a")
    assert it.view.last_used((1, 2)) == 1
    it.send("b", (3,), stored=False)
    assert (it.view.last_used((3,)), it.view.last_used((4,))) == (2, 0)
    it.clock.advance(SETTLE_SECONDS)
    assert it.view.last_used((3,)) == 0  # the estimate still has it, the engine never did
    it.held.update(keys_of((3,)))
    assert it.view.last_used((3,)) == 2


def test_answers_that_come_too_late_are_bounded(monkeypatch):
    monkeypatch.setattr("contextpilot_core.mirror.view._MOST_LATE", 2)
    it = Fixture()
    for name in "abc":
        it.view.admit((1,), name)
    it.clock.advance(PATIENCE)
    it.view.admit((2,), "d")
    assert [bool(it.view.record(name, 1, keys_of((1,)), [0, 1])) for name in "abcd"] == [False, True, True, True]
    it.check()


def test_integrity_check_sees_who_waits_for_nothing():
    it = Fixture()
    it.view.admit((1, 2), "a")
    it.view._paths.clear()
    with pytest.raises(IntegrityError, match="not those that wait"):
        it.view.check_integrity()


steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "record", "release", "store", "drop", "wait", "doubt"]),
        st.sampled_from("abc"),
        st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(steps)
def test_any_sequence_keeps_it_sound_and_never_promises_what_is_gone(sequence):
    it = Fixture(capacity=60, max_requests=4)
    paths = {}
    for step, name, path in sequence:
        if step == "admit" and not it.view.holds(name):
            it.view.admit(path, name)
            paths[name] = path
        elif step == "record":
            sent = paths.get(name, ())
            it.view.record(name, len(sent), keys_of(sent), range(len(sent) + 1))
        elif step == "release":
            it.view.release(name)
        elif step == "store":
            it.held.update(keys_of(path))
        elif step == "drop":
            it.held.difference_update(keys_of(path)[-1:])
        elif step == "wait":
            it.clock.advance(SETTLE_SECONDS)
        else:
            it.believed = not it.believed
        it.check()
    it.clock.advance(PATIENCE)
    it.view.admit((5,), "last")
    it.view.record("last", 1, keys_of((5,)), [0, 1])
    it.held.update(keys_of((5,)))
    it.believed = True
    for asked in ((0, 1, 2), (3, 4, 5), (5,), (2, 1)):
        depth = it.view.cached_blocks(asked)
        found = it.view.longest((), Wanted(asked, 64))
        assert it.held.issuperset(keys_of(asked[:depth]))
        assert it.held.issuperset(keys_of(found))
        assert len(found) >= depth
