"""A view that several processes share: own plans are seen at once, others' as soon as they are there."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import DuplicateRequestError, EngineConfig
from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.errors import IntegrityError
from contextpilot_core.journal.log_state import LoggedNamespace, LogState
from contextpilot_core.journal.operations import Entry, Inserted, Operation, Released
from contextpilot_core.journal.view import ReplicatedView
from tests.core.memory_log import TEXTS, exchange, order, reuse, workers


def test_a_plan_follows_what_another_worker_sent():
    one, two = workers()
    order(one, 5, 6)
    assert order(two, 7, 6, 5) == [7, 6, 5]
    exchange(one, two)
    assert order(two, 8, 6, 5) == [5, 6, 8]


def test_own_plans_are_seen_before_they_come_back():
    one, two = workers()
    order(one, 5, 6)
    assert order(one, 7, 6, 5) == [5, 6, 7]
    one.send()
    order(two, 8, 5)
    exchange(two)
    exchange(one, two)
    one.engine.check_integrity()
    assert one.engine.stats().live_requests == two.engine.stats().live_requests == 3


def test_ids_that_are_made_differ_between_workers_and_given_ones_are_refused_when_they_are_known():
    one, two = workers()
    assert one.engine.plan([TEXTS[0]]).request_id != two.engine.plan([TEXTS[0]]).request_id
    one.engine.plan([TEXTS[1]], request_id="mine")
    exchange(one, two)
    with pytest.raises(DuplicateRequestError, match="mine"):
        two.engine.plan([TEXTS[2]], request_id="mine")


def test_an_id_that_two_workers_gave_at_the_same_time_belongs_to_the_later_one():
    one, two = workers()
    one.engine.plan([TEXTS[0]], request_id="both")
    two.engine.plan([TEXTS[1]], request_id="both")
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot()
    assert one.engine.stats().live_requests == 1
    assert reuse(one, TEXTS[0]) == 0 < reuse(one, TEXTS[1])


def test_a_request_may_be_evicted_by_another_worker():
    one, two = workers()
    waiting = one.engine.plan([TEXTS[0]], request_id="a", commit=False)
    exchange(one, two)
    report = two.engine.evict(["a", "b"])
    assert (report.evicted, report.unknown) == (("a",), ("b",))
    assert report.freed_tokens == waiting.report.block_tokens
    assert two.engine.evict(["a"]).unknown == ("a",)
    exchange(one, two)
    assert one.engine.stats().in_flight == one.engine.stats().cached_tokens == 0
    assert not one.engine.commit(waiting)
    one.engine.check_integrity()


def test_an_id_may_be_used_again_before_its_eviction_came_back():
    one, two = workers()
    one.engine.plan([TEXTS[0]], request_id="a")
    exchange(one, two)
    one.engine.evict(["a"])
    one.engine.plan([TEXTS[1]], request_id="a")
    exchange(one, two)
    assert reuse(two, TEXTS[1]) > 0 == reuse(two, TEXTS[0])
    assert one.engine.evict(["a"]).evicted == ("a",)


# -- the view by itself ----------------------------------------------------------------------------------------------

BLOCKS = range(6)
TOKENS = [block % 3 + 1 for block in BLOCKS]


class Here:
    """A process with a view, and a log that it hears of when a test says so."""

    def __init__(self, capacity: int | None = None) -> None:
        self.log = LogState(EngineConfig(cache_tokens=capacity))
        self.blocks = BlockTable()
        self.blocks.intern_path([(bytes([block]), TOKENS[block]) for block in BLOCKS])
        overlay = CacheView(self.blocks, capacity=capacity, max_requests=1_000)
        self.view = ReplicatedView("n", self.blocks, overlay, self)
        self.waiting: list[Entry] = []
        self.numbers = Counter[str]()

    def logged(self, namespace: str) -> LoggedNamespace | None:
        return self.log.namespaces.get(namespace)

    def record(self, operation: Operation) -> int:
        self.numbers["here"] += 1
        self.waiting.append(Entry("here", self.numbers["here"], operation))
        return self.numbers["here"]

    def deliver(self, most: int = 1_000) -> None:
        for entry in self.waiting[:most]:
            self.log.apply(entry)
            request_id = entry.operation.request_id  # type: ignore[union-attr]
            if request_id is not None:
                self.view.delivered(entry.number, request_id)
        del self.waiting[:most]

    def elsewhere(self, operation: Operation) -> None:
        """Let another process do something that reaches the log at once."""
        self.numbers["there"] += 1
        self.log.apply(Entry("there", self.numbers["there"], operation))

    def check(self) -> None:
        self.view.check_integrity()
        self.blocks.check_integrity(Counter(BLOCKS) + self.view.references())


def described(*path: int) -> tuple[tuple[bytes, int], ...]:
    return tuple((bytes([block]), TOKENS[block]) for block in path)


def test_what_was_admitted_is_there_while_it_is_on_its_way_and_after():
    here = Here()
    for delivered in (False, True):
        if delivered:
            here.deliver()
        else:
            assert here.view.admit((0, 1, 2), "a") == []
        assert (len(here.view), here.view.tokens, here.view.holds("a")) == (1, 6, True)
        assert here.view.cached_blocks((0, 1, 3)) == 2
        assert here.view.longest((0,), Wanted((2, 1), 9)) == (1, 2)
        assert here.view.longest((), Wanted((1, 0), 9, optional=frozenset({1}))) == (0,)
        assert here.view.longest((), Wanted((1, 0), 9, optional=frozenset({1}), allowance=1)) == (0, 1)
        assert here.view.longest((3,), Wanted((0,), 9)) == ()
        assert here.view.usual((), Wanted((0, 1), 9)) == ()
        here.check()
    assert not here.view.references()  # the log has ids of its own


def test_the_heavier_of_both_parts_is_followed():
    here = Here()
    here.elsewhere(Inserted("n", "x", described(3, 4)))
    here.view.admit((5, 1), "a")
    assert here.view.longest((), Wanted((1, 3, 4, 5), 9)) == (5, 1)  # 5 tokens, not 3
    assert here.view.longest((), Wanted((3, 4, 5), 9)) in ((3, 4), (5,))
    assert here.view.longest((), Wanted((3, 4), 9)) == (3, 4)
    here.deliver()
    assert here.view.longest((), Wanted((1, 3, 4, 5), 9)) == (5, 1)


def test_use_here_is_later_than_all_that_the_log_knows():
    here = Here()
    here.elsewhere(Inserted("n", "x", described(0)))
    here.elsewhere(Inserted("n", "y", described(1)))
    here.view.admit((0, 2), "a")
    used = [here.view.last_used(path) for path in ((0,), (1,), (3,), ())]
    assert used == [3, 2, 0, 0]
    here.deliver()
    assert [here.view.last_used(path) for path in ((0,), (1,), (3,))] == [3, 2, 0]


def test_a_release_is_seen_at_once_and_says_what_it_frees():
    here = Here()
    here.view.admit((0, 1), "a")
    assert here.view.release("a") == 3
    assert (here.view.holds("a"), len(here.view), here.view.release("a")) == (False, 0, None)
    assert [type(entry.operation) for entry in here.waiting] == [Inserted, Released]
    here.view.admit((0, 2), "b")
    here.deliver()
    assert (here.view.release("b"), here.view.release("b"), len(here.view)) == (4, None, 0)
    assert here.view.release("nobody") is None
    assert len(here.waiting) == 1
    here.deliver()
    assert here.view.tokens == 0
    here.check()


def test_only_the_latest_operation_on_a_request_ends_the_waiting():
    here = Here()
    here.view.admit((0,), "a")
    here.view.release("a")
    here.view.admit((1,), "a")
    here.deliver(most=2)
    assert here.view.holds("a")
    assert here.view.cached_blocks((1,)) == 1
    here.deliver()
    assert (here.view.cached_blocks((0,)), here.view.cached_blocks((1,))) == (0, 1)
    here.check()


def test_integrity_check_sees_a_request_that_waits_for_nothing():
    here = Here()
    here.view.admit((0,), "a")
    here.view._pending.clear()
    with pytest.raises(IntegrityError, match="does not wait for the log"):
        here.view.check_integrity()


paths = st.lists(st.sampled_from(BLOCKS), max_size=4, unique=True).map(tuple)
names = st.sampled_from("abcd")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.none() | names, paths),
        st.tuples(st.just("release"), names, st.just(())),
        st.tuples(st.just("there"), st.sampled_from("xy"), paths),
        st.tuples(st.just("deliver"), st.sampled_from("12"), st.just(())),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(steps, paths)
def test_nothing_is_lost_on_the_way_and_in_the_end_it_is_the_view_of_the_log(steps, asked):
    here, live = Here(), {}
    for step, name, path in steps:
        if step == "admit" and (name is None or not here.view.holds(name)):
            here.view.admit(path, name)
            if name is not None:
                live[name] = path
                assert here.view.cached_blocks(path) == len(path)
                assert set(here.view.longest((), Wanted(path, 99))) == set(path)
        elif step == "release":
            assert (here.view.release(name) is None) == (live.pop(name, None) is None)
        elif step == "there":
            here.elsewhere(Inserted("n", name, described(*path)))
            live[name] = path
        elif step == "deliver":
            here.deliver(int(name))
        here.check()
        assert len(here.view) == len(live)
        assert all(here.view.holds(name) == (name in live) for name in "abcdxy")
        for path in live.values():
            assert here.view.cached_blocks(path) == len(path)
    here.deliver()
    here.check()
    logged = here.logged("n")
    known = [] if logged is None else [logged.blocks.find(bytes([block])) for block in asked]
    shared = None if logged is None else logged.view
    leading = known[: known.index(None)] if None in known else known
    assert here.view.tokens == (shared.tokens if shared is not None else 0)
    assert here.view.cached_blocks(asked) == (shared.cached_blocks(leading) if shared is not None else 0)
    assert here.view.last_used(asked) == (shared.last_used(leading) if shared is not None else 0)
