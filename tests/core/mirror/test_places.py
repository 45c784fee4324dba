"""Paths whose KV blocks are known: only what is cached from the start on counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.places import TruthTree

BLOCKS = range(6)


class Cache:
    """The engine's side: which keys it holds."""

    def __init__(self):
        self.keys = set()
        self.moment = 0

    def holds(self, keys):
        return self.keys.issuperset(keys)

    def store(self, keys):
        self.keys.update(keys)
        self.moment += 1

    def drop(self, keys):
        self.keys.difference_update(keys)
        self.moment += 1


def make():
    blocks, cache = BlockTable(), Cache()
    for number in BLOCKS:
        blocks.intern(bytes([number]), lambda number=number: 10 * (number + 1))
    return blocks, cache, TruthTree(blocks, cache)


def keys_of(path):
    """Two KV blocks for every block of a path, one for block 0, none for block 5 (it is too short)."""
    keys, ends = [], []
    for depth, block in enumerate(path):
        keys += [repr((path[: depth + 1], part)).encode() for part in range({0: 1, 5: 0}.get(block, 2))]
        ends.append(len(keys))
    return tuple(keys), ends


def expected_depth(cache, recorded, path):
    """Leading blocks of ``path`` that count: some recorded path starts with them, and all their KV blocks are held."""
    best = 0
    for depth in range(1, len(path) + 1):
        head = path[:depth]
        keys, ends = keys_of(head)
        if not any(other[:depth] == head for other in recorded) or not cache.holds(keys):
            break
        if ends[-1] > (ends[-2] if depth > 1 else 0):
            best = depth
    return best


def test_a_missing_kv_block_cuts_off_what_follows():
    _, cache, tree = make()
    keys, ends = keys_of((1, 2, 3))
    tree.record("a", (1, 2, 3), keys, ends)
    assert tree.cached_blocks((1, 2, 3)) == 0
    cache.store(keys)
    assert tree.cached_blocks((1, 2, 3)) == 3
    assert tree.longest((), Wanted((3, 2, 1), 64)) == (1, 2, 3)
    cache.drop(keys[2:3])  # of the second block
    assert tree.cached_blocks((1, 2, 3)) == 1
    assert tree.longest((), Wanted((3, 2, 1), 64)) == (1,)
    assert tree.longest((1, 2), Wanted((3,), 64)) == ()
    cache.drop(keys[:1])
    assert tree.longest((), Wanted((3, 2, 1), 64)) == ()


def test_the_path_of_most_tokens_wins_within_what_selection_allows():
    _, cache, tree = make()
    for name, path in (("a", (1, 2)), ("b", (1, 4)), ("c", (3,))):
        keys, ends = keys_of(path)
        tree.record(name, path, keys, ends)
        cache.store(keys)
    assert tree.longest((), Wanted((1, 2, 3, 4), 64)) == (1, 4)
    assert tree.longest((), Wanted((1, 2, 3, 4), 64, optional=frozenset({4}))) == (1, 2)
    assert tree.longest((), Wanted((1, 2, 3, 4), 64, optional=frozenset({4}), allowance=1)) == (1, 4)


def test_unknown_ends_count_for_the_next_known_one():
    _, cache, tree = make()
    keys, _ = keys_of((1, 2, 3))
    tree.record("a", (1, 2, 3), keys, [None, 4, 6])
    cache.store(keys[:3])
    assert tree.cached_blocks((1, 2, 3)) == 0
    cache.store(keys[3:4])
    assert tree.cached_blocks((1, 2, 3)) == 2


def test_prompts_with_other_tools_have_places_of_their_own():
    _, cache, tree = make()
    keys, ends = keys_of((1, 2))
    other = (b"x", b"y", b"z")
    tree.record("a", (1, 2), keys, ends)
    tree.record("b", (1, 3), other, [1, 3])
    cache.store((*keys, *other))
    assert tree.longest((), Wanted((1, 2), 64)) == (1, 2)
    cache.drop(keys[:1])  # of the one kind, from the start
    assert tree.cached_blocks((1, 2)) == 1
    assert tree.cached_blocks((1, 3)) == 2
    cache.store(keys[:1])
    cache.drop(other[:1])  # of the other
    assert tree.cached_blocks((1, 2)) == 2
    assert tree.cached_blocks((1, 3)) == 1
    tree.check_integrity()


def test_a_record_that_contradicts_itself_changes_nothing():
    _, _, tree = make()
    keys, ends = keys_of((1, 2))
    tree.record("a", (1, 2), keys, ends)
    with pytest.raises(ValueError, match="zip"):
        tree.record("a", (1, 2, 3), keys, ends)
    assert len(tree) == 1
    tree.check_integrity()


def test_what_is_left_of_an_evicted_prompt_stays_known():
    _, cache, tree = make()
    keys, ends = keys_of((1, 2, 3))
    tree.record("a", (1, 2, 3), keys, ends)
    cache.store(keys[:4])
    tree.prune(limit=9)
    assert tree.cached_blocks((1, 2, 3)) == 2
    assert sorted(tree.references()) == [1, 2]
    tree.record("b", (1, 2), keys[:4], ends[:2])
    cache.drop(keys[2:])
    tree.prune(limit=9)
    assert len(tree) == 1  # one name is enough to keep a place
    assert tree.cached_blocks((1, 2)) == 1
    tree.check_integrity()


def test_pruning_forgets_what_the_engine_no_longer_holds():
    blocks, cache, tree = make()
    for name, path in (("a", (1,)), ("b", (2,)), ("c", (3, 5))):
        keys, ends = keys_of(path)
        tree.record(name, path, keys, ends)
        cache.store(keys if name != "a" else ())
    tree.prune(limit=9)
    assert len(tree) == 2
    cache.drop(set(cache.keys))
    tree.prune(limit=9)
    assert len(tree) == 0
    assert not tree.references()


@pytest.mark.parametrize("limit", [0, 1])
def test_pruning_keeps_the_limit(limit):
    _, cache, tree = make()
    for name, path in (("a", (1,)), ("b", (2,)), ("c", (3,))):
        keys, ends = keys_of(path)
        tree.record(name, path, keys, ends)
        cache.store(keys)
    tree.prune(limit=limit)
    assert len(tree) == limit
    tree.check_integrity()


def test_a_short_block_counts_only_before_one_that_counts():
    _, cache, tree = make()
    for name, path in (("a", (1, 5)), ("b", (2, 5, 0))):
        keys, ends = keys_of(path)
        tree.record(name, path, keys, ends)
        cache.store(keys)
    assert tree.longest((), Wanted((1, 5), 64)) == (1,)
    assert (tree.cached_blocks((1, 5)), tree.cached_blocks((2, 5, 0))) == (1, 3)
    assert tree.longest((), Wanted((0, 2, 5), 64)) == (2, 5, 0)
    cache.drop(keys[-1:])
    assert tree.longest((), Wanted((0, 2, 5), 64)) == (2,)


def test_requests_to_keep_are_not_judged():
    _, cache, tree = make()
    for name, path in (("a", (1,)), ("b", (2,)), ("c", (3,))):
        tree.record(name, path, *keys_of(path))
    tree.prune(limit=9, keep={"a", "b"})
    assert len(tree) == 3
    tree.prune(limit=9, keep={"a", "b"})  # the two oldest are c and a now: whoever was looked at goes to the end
    assert sorted(tree.references()) == [1, 2]
    tree.prune(limit=1, keep={"a", "b"})  # the limit spares nobody
    assert len(tree) == 1
    tree.check_integrity()


def test_a_search_visits_no_more_places_than_allowed():
    _, cache, tree = make()
    for name, path in (("a", (4, 3, 2, 1)), ("b", (0, 1))):
        keys, ends = keys_of(path)
        tree.record(name, path, keys, ends)
        cache.store(keys)
    wanted = (0, 1, 2, 3, 4)
    # two places for every node: the root and the heaviest child, then two more
    assert tree.longest((), Wanted(wanted, 1)) == (4,)
    assert tree.longest((), Wanted(wanted, 2)) == (4, 3, 2)
    assert tree.longest((), Wanted(wanted, 3)) == (4, 3, 2, 1)


def test_integrity_check_sees_what_does_not_belong_together():
    def planted():
        _, _, tree = make()
        tree.record("a", (1, 2), *keys_of((1, 2)))
        [above] = tree._root.children[1]
        [end] = above.children[2]
        return tree, above, end

    tree, above, end = planted()
    above.children[3] = above.children.pop(2)
    with pytest.raises(IntegrityError, match="not linked to its parent"):
        tree.check_integrity()
    tree, above, end = planted()
    end.requests.clear()
    with pytest.raises(IntegrityError, match="serves no request"):
        tree.check_integrity()
    tree, above, end = planted()
    tree._ends["b"] = end
    with pytest.raises(IntegrityError, match="lists 2 requests, its places hold 1"):
        tree.check_integrity()


paths = st.lists(st.sampled_from(BLOCKS), max_size=5, unique=True).map(tuple)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from("abcd"), paths),
        st.tuples(st.just("release"), st.sampled_from("abcd"), st.just(())),
        st.tuples(st.just("store"), st.just(""), paths),
        st.tuples(st.just("remove"), st.just(""), paths),
    ),
    max_size=30,
)


@given(operations, paths)
def test_it_agrees_with_a_plain_list_of_paths(steps, asked):
    blocks, cache, tree = make()
    recorded = {}
    for step, name, path in steps:
        keys, ends = keys_of(path)
        if step == "record":
            tree.record(name, path, keys, ends)
            recorded.pop(name, None)
            if path:
                recorded[name] = path
        elif step == "release":
            assert tree.release(name) == (recorded.pop(name, None) is not None)
        elif step == "store":
            cache.store(keys)
        else:
            cache.drop(keys[-1:])
        tree.check_integrity()
        blocks.check_integrity({number: 1 + tree.references()[number] for number in BLOCKS})
        assert tree.cached_blocks(asked) == expected_depth(cache, recorded.values(), asked)
        found = tree.longest((), Wanted(asked, 64))
        assert expected_depth(cache, recorded.values(), found) == len(found)
        worth = [expected_depth(cache, recorded.values(), path) for path in recorded.values()]
        inside = [path[:n] for path, n in zip(recorded.values(), worth, strict=True)]
        best = max(
            (sum(10 * (b + 1) for b in part) for part in map(lambda p: _prefix_inside(cache, p, asked), inside)),
            default=0,
        )
        assert sum(10 * (block + 1) for block in found) == best


def _prefix_inside(cache, path, wanted):
    """The longest start of a cached path that is wanted and ends with a KV block of its own."""
    depth = next((place for place, block in enumerate(path) if block not in wanted), len(path))
    while depth and path[depth - 1] == 5:
        depth -= 1
    return path[:depth]
