"""The LRU estimate against a plain model of whole blocks with ticks (docs: "Replay")."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.errors import IntegrityError
from tests.core.plain_cache import PlainCache

paths = st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True)


def table(weight: list[int]) -> BlockTable:
    blocks = BlockTable()
    for number, tokens in enumerate(weight):
        blocks.intern(str(number).encode(), lambda tokens=tokens: tokens)
    return blocks


@settings(max_examples=300)
@given(st.lists(paths, max_size=30), st.integers(1, 30), st.lists(st.integers(1, 5), min_size=8, max_size=8))
def test_view_equals_the_plain_model(sequence: list[list[int]], capacity: int, weight: list[int]):
    view, model = CacheView(table(weight), capacity=capacity, max_requests=100), PlainCache(capacity, weight)
    for number, path in enumerate(sequence):
        assert view.cached_blocks(path) == model.matched(path)
        view.admit(path, f"q{number}")
        model.admit(path)
        view.check_integrity()
        cached = {tuple(node_path) for node_path in prefixes(view)}
        assert cached == set(model.ticks)


def prefixes(view: CacheView) -> list[list[int]]:
    found, stack = [], [(view.tree.root, [])]
    while stack:
        node, before = stack.pop()
        for length in range(1, len(node.blocks) + 1):
            found.append(before + node.blocks[:length])
        stack.extend((child, before + node.blocks) for child in node.children.values())
    return found


@settings(max_examples=200)
@given(st.lists(st.one_of(paths, st.integers(0, 30)), max_size=40), st.integers(1, 25))
def test_admissions_and_releases_keep_references_and_capacity(steps: list[list[int] | int], capacity: int):
    blocks = BlockTable()
    view = CacheView(blocks, capacity=capacity, max_requests=5)
    for number, step in enumerate(steps):
        if isinstance(step, int):
            view.release(f"q{step}")
        else:
            ids = [blocks.intern(str(block).encode(), lambda block=block: block % 3 + 1) for block in step]
            view.admit(ids, f"q{number}")
            blocks.release(ids)
        view.check_integrity()
        blocks.check_integrity(view.references())
        assert len(view.tree.ends) <= 5
    for name in list(view.tree.ends):
        view.release(name)
    assert not view.tree.ends


def test_a_head_that_is_not_cached_has_no_path_below_it():
    blocks = table([1, 1, 1])
    view = CacheView(blocks, capacity=None, max_requests=10)
    view.admit([0, 1])
    assert view.longest((2,), Wanted((0, 1), 10)) == ()
    assert view.longest((0,), Wanted((1,), 10)) == (1,)
    assert view.longest((), Wanted((1, 0), 10)) == (0, 1)


def test_one_context_may_exceed_the_capacity():
    blocks = table([5, 5, 5])
    view = CacheView(blocks, capacity=7, max_requests=10)
    view.admit([0], "a")
    assert view.admit([1, 2], "b") == ["a"]
    assert view.tokens == 10
    view.check_integrity()


def test_integrity_check_sees_a_node_without_a_place():
    view = CacheView(table([1]), capacity=None, max_requests=10)
    view.admit([0])
    view._recency.clear()
    with pytest.raises(IntegrityError, match="place"):
        view.check_integrity()


def test_integrity_check_sees_a_path_that_is_younger_than_what_it_stands_on():
    view = CacheView(table([1, 1, 1]), capacity=None, max_requests=10)
    view.admit([0, 1])
    view.admit([0, 2])
    view._recency.move_to_end(view.tree.walk([0, 2])[0])
    with pytest.raises(IntegrityError, match="older than a path that runs through it"):
        view.check_integrity()


def test_integrity_check_sees_nodes_that_left_the_tree():
    view = CacheView(table([1]), capacity=None, max_requests=10)
    view.admit([0], "q")
    view.tree.release("q")
    with pytest.raises(IntegrityError, match="nodes that left the tree"):
        view.check_integrity()


def test_use_is_counted_in_admissions():
    view = CacheView(table([1, 1, 1]), capacity=None, max_requests=10)
    assert view.last_used((0,)) == 0
    view.admit([0, 1], "a")
    view.admit([2], "b")
    assert [view.last_used(path) for path in ((0, 1), (0, 2), (2,), (1,), ())] == [1, 1, 2, 0, 0]
    view.admit([0, 2], "c")
    assert [view.last_used(path) for path in ((0,), (0, 1), (0, 2))] == [3, 1, 3]
    assert view.admissions == 3


def test_what_nobody_names_is_forgotten_by_age_alone():
    view = CacheView(table([4, 4, 4, 4]), capacity=12, max_requests=10)
    view.admit([0, 1])
    view.admit([2], "named")
    assert view.admit([0, 3]) == []  # 1 is the oldest, and nobody's
    assert [view.cached_blocks(path) for path in ((0, 1), (0, 3), (2,))] == [1, 2, 1]
    assert view.admit([1], "late") == ["named"]
    assert view.holds("named") is False
    view.check_integrity()


def test_the_oldest_of_too_many_requests_goes():
    view = CacheView(table([1, 1, 1]), capacity=None, max_requests=2)
    view.admit([0], "a")
    view.admit([0, 1], "b")
    assert view.admit([2], "c") == ["a"]
    assert len(view) == 2
    assert view.cached_blocks((0, 1)) == 2
    view.admit([0], "d")
    assert (view.holds("b"), view.tokens, view.cached_blocks((0, 1))) == (False, 2, 1)
    view.check_integrity()


def test_requests_at_one_node_go_oldest_first_however_they_came_there():
    view = CacheView(table([1, 2, 3]), capacity=5, max_requests=10)
    view.admit([0, 1, 2], "q0")
    assert view.admit([0, 1], "q1") == ["q0"]  # now both end at [0, 1], the older one since then
    twin = CacheView(table([1, 2, 3]), capacity=5, max_requests=10)
    twin.restore(view.state())
    assert view.admit([0, 2], "q2") == twin.admit([0, 2], "q2") == ["q0", "q1"]
    assert view.state() == twin.state()


@settings(max_examples=500)
@given(
    st.lists(st.one_of(paths, st.integers(0, 15)), max_size=25),
    st.lists(st.one_of(paths, st.integers(0, 40)), max_size=15),
    st.integers(5, 25),
)
def test_a_restored_view_goes_on_like_the_one_it_was_taken_of(before, after, capacity):
    blocks = table([block % 3 + 1 for block in range(8)])
    view = CacheView(blocks, capacity=capacity, max_requests=6)
    for number, step in enumerate(before):
        if isinstance(step, int):
            view.release(f"q{step}")
        else:
            view.admit(step, f"q{number}")
    twins = table([block % 3 + 1 for block in range(8)])
    twin = CacheView(twins, capacity=capacity, max_requests=6)
    twin.restore(view.state())
    assert twin.state() == view.state()
    for number, step in enumerate(after, len(before)):
        if isinstance(step, int):
            promised = view.freed_by(f"q{step}")
            freed = view.release(f"q{step}")
            assert twin.release(f"q{step}") == freed
            assert promised == (freed or 0)
        else:
            touched = view.admit(step, f"q{number}"), twin.admit(step, f"q{number}")
            assert touched[0] == touched[1]
            assert view.last_used(step) == twin.last_used(step)
        twin.check_integrity()
        twins.check_integrity(twin.references() + Counter(range(8)))
    assert twin.state() == view.state()
