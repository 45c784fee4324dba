"""The prefix tree: paths, splits, the longest path inside a request, removal."""

from collections import defaultdict
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.tree import PrefixTree
from contextpilot_core.errors import IntegrityError

paths = st.lists(st.integers(0, 6), max_size=6, unique=True)


def weights() -> defaultdict[int, int]:
    table: defaultdict[int, int] = defaultdict(int)
    for block in range(2000):
        table[block] = block % 5 + 1
    return table


def longest_by_force(
    stored: list[list[int]],
    wanted: list[int],
    weight: dict[int, int],
    optional: Collection[int] = (),
    allowance: int = 0,
) -> int:
    best = 0
    for path in stored:
        total, left = 0, allowance
        for block in path:
            left -= block in optional
            if block not in wanted or left < 0:
                break
            total += weight[block]
        best = max(best, total)
    return best


@given(st.lists(paths, max_size=12), paths)
def test_longest_path_is_the_heaviest_stored_prefix_inside_the_request(stored: list[list[int]], wanted: list[int]):
    weight = weights()
    tree = PrefixTree(weight)
    for number, path in enumerate(stored):
        tree.insert(path, f"q{number}")
    found = tree.longest(tree.root, 0, Wanted(wanted, 10_000))
    assert tree.walk(found)[2] == len(found)
    assert set(found) <= set(wanted)
    assert sum(weight[block] for block in found) == longest_by_force(stored, wanted, weight)


@given(st.lists(paths, max_size=12), paths, st.sets(st.integers(0, 6)), st.integers(0, 3))
def test_optional_blocks_are_limited(stored: list[list[int]], wanted: list[int], optional: set[int], allowance: int):
    weight = weights()
    tree = PrefixTree(weight)
    for path in stored:
        tree.insert(path)
    found = tree.longest(tree.root, 0, Wanted(wanted, 10_000, optional=optional, allowance=allowance))
    assert len(optional & set(found)) <= allowance
    assert tree.walk(found)[2] == len(found)
    best = longest_by_force(stored, wanted, weight, optional, allowance)
    assert sum(weight[block] for block in found) == best


@given(st.lists(paths, max_size=12), paths, paths)
def test_a_search_may_begin_inside_a_node(stored: list[list[int]], head: list[int], wanted: list[int]):
    weight = weights()
    tree = PrefixTree(weight)
    for path in stored:
        tree.insert(path)
    node, used, matched = tree.walk(head)
    common = [[a == b for a, b in zip(head, path, strict=False)] for path in stored]
    assert matched == max((next((n for n, same in enumerate(row) if not same), len(row)) for row in common), default=0)
    if matched == len(head):
        below = [path[matched:] for path in stored if path[:matched] == head]
        found = tree.longest(node, used, Wanted(wanted, 10_000))
        assert list(found) in [path[: len(found)] for path in below] or not found
        assert sum(weight[block] for block in found) == longest_by_force(below, wanted, weight)


def test_a_search_visits_no_more_nodes_than_allowed():
    tree = PrefixTree(weights())
    for block in range(1, 100):
        tree.insert([0, block])
    assert tree.longest(tree.root, 0, Wanted(list(range(100)), 2)) == (0,)
    assert len(tree.longest(tree.root, 0, Wanted(list(range(100)), 3))) == 2


@settings(max_examples=200)
@given(st.lists(st.one_of(st.tuples(st.just("insert"), paths), st.tuples(st.just("release"), st.integers(0, 20)))))
def test_random_inserts_and_releases_keep_integrity(steps: list[tuple[str, object]]):
    tree = PrefixTree(weights())
    live: dict[str, list[int]] = {}
    for number, (action, value) in enumerate(steps):
        if action == "insert":
            assert isinstance(value, list)
            tree.insert(value, f"q{number}")
            live[f"q{number}"] = value
        else:
            name = f"q{value}"
            assert (tree.release(name) is None) == (name not in live)
            live.pop(name, None)
        tree.check_integrity()
        assert set(tree.ends) == set(live)
    for path in live.values():
        assert tree.walk(path)[2] == len(path)
    for name in list(live):
        tree.release(name)
    assert tree.tokens == 0
    assert not list(tree.nodes())


def test_a_prefix_of_another_path_has_its_own_end():
    tree = PrefixTree(weights())
    tree.insert([1, 2, 3], "long")
    tree.insert([1, 2], "short")
    end = tree.ends.get("short")
    assert end is tree.walk([1, 2])[0]
    assert tree.release("short") == []
    assert tree.walk([1, 2, 3])[2] == 3
    removed = tree.release("long")
    assert removed is not None
    assert tree.tokens == 0


def test_trimming_a_leaf_moves_its_requests_up_and_forgets_them_at_the_root():
    tree = PrefixTree(weights())
    tree.insert([1, 2], "short")
    tree.insert([1, 2, 3, 4], "long")
    leaf = tree.ends.get("long")
    assert leaf is not None
    assert tree.trim(leaf, 1) == ([4], ["long"])
    assert tree.ends.get("long") is leaf
    assert tree.trim(leaf, 1) == ([3], ["long"])
    upper = tree.ends.get("long")
    assert upper is tree.ends.get("short")
    assert upper is not None
    assert tree.trim(upper, 2) == ([1, 2], ["short", "long"])
    assert not tree.ends
    tree.check_integrity()


def test_trimming_tells_the_oldest_first_though_it_came_from_below():
    tree = PrefixTree(weights())
    tree.insert([1, 2, 3], "old")
    tree.insert([1, 2], "young")
    tree.trim(tree.ends["old"], 1)
    assert tree.ends["old"] is tree.ends["young"]
    assert tree.trim(tree.ends["old"], 1) == ([2], ["old", "young"])


def test_a_split_keeps_the_node_that_stands_lower():
    tree = PrefixTree(weights())
    [whole], fresh = tree.insert([1, 2, 3], "long")
    assert list(fresh) == [1, 2, 3]
    [upper, own], fresh = tree.insert([1, 2, 6, 9], "other")
    assert (upper.blocks, own.blocks, list(fresh)) == ([1, 2], [6, 9], [6, 9])
    assert whole.parent is upper
    assert (whole.blocks, whole.tokens) == ([3], 4)
    assert tree.ends["long"] is whole
    assert tree.insert([1, 2]) == ([upper], [])
    tree.check_integrity()


def test_what_is_there_for_one_request_only():
    tree = PrefixTree(weights())
    tree.insert([1, 2, 3], "a")
    tree.insert([1, 2, 6, 9], "b")
    tree.insert([1, 2, 6], "c")
    assert [node.blocks for node in tree.held_by("a")] == [[3]]
    assert [node.blocks for node in tree.held_by("b")] == [[9]]
    assert tree.held_by("c") == tree.held_by("nobody") == []
    tree.release("a")
    tree.release("c")
    assert [node.blocks for node in tree.held_by("b")] == [[9], [6], [1, 2]]
    tree.insert([1, 2, 6, 9], "b's twin")
    assert tree.held_by("b") == []


def test_integrity_check_sees_a_wrong_count():
    tree = PrefixTree(weights())
    tree.insert([1, 2], "q")
    tree.tokens += 1
    with pytest.raises(IntegrityError, match="tokens"):
        tree.check_integrity()


def test_integrity_check_sees_wrong_links_weights_and_ends():
    tree = PrefixTree(weights())
    [node], _ = tree.insert([1, 2], "q")
    node.blocks.reverse()  # its parent finds it by the first block
    with pytest.raises(IntegrityError, match="not linked"):
        tree.check_integrity()
    node.blocks.reverse()
    node.tokens += 1
    with pytest.raises(IntegrityError, match="6 tokens, its blocks differ"):
        tree.check_integrity()
    node.tokens -= 1
    tree.check_integrity()
    tree.end("q", tree.root)
    with pytest.raises(IntegrityError, match="ends at another node"):
        tree.check_integrity()


def test_the_root_is_no_leaf_to_trim():
    tree = PrefixTree(weights())
    with pytest.raises(IntegrityError, match="root"):
        tree.trim(tree.root, 1)


def test_a_chain_of_thousands_is_inserted_and_released_without_recursion():
    tree = PrefixTree(weights())
    for length in range(1, 1500):
        tree.insert(list(range(length)), f"q{length}")
    for length in range(1, 1500):
        tree.release(f"q{length}")
    assert not list(tree.nodes())
