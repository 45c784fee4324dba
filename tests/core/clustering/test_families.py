"""The merging of a window: worked by hand, and against looking at every pair before every merge."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.tree import PrefixTree
from contextpilot_core.clustering.families import Cached, Families, cached_families

BLOCKS = 9
paths = st.lists(st.integers(0, BLOCKS - 1), max_size=6, unique=True).map(tuple)
weightings = st.lists(st.integers(1, 5), min_size=BLOCKS, max_size=BLOCKS)
Path = tuple[int, ...]


def cache_of(stored: Sequence[Path], weights: dict[int, int]) -> Cached:
    tree = PrefixTree(weights)
    for path in stored:
        tree.insert(path)

    return lambda wanted: tree.longest(tree.root, 0, Wanted(wanted, 1_000))


def families(contexts: Sequence[Path], stored: Sequence[Path] = (), weights: dict[int, int] | None = None) -> Families:
    weights = weights or dict.fromkeys(range(20), 1)
    return cached_families(contexts, weights, cache_of(stored, weights))


def test_without_a_cache_what_shares_most_is_merged_first():
    found = families([(1, 2, 3), (4, 5), (3, 1, 6), (5, 7), (8,)])
    assert found.members == ((0, 2), (1, 3), (4,))
    assert found.orders == ((1, 3, 2), (5, 4), (1, 3, 6), (5, 7), (8,))
    assert found.shared == (2, 1, 2, 1, 0)


def test_a_family_goes_on_from_what_is_cached():
    found = families([(1, 2, 3), (3, 4, 1)], stored=[(3, 9)])
    assert found.orders == ((3, 1, 2), (3, 1, 4))
    assert found.shared == (2, 2)


def test_a_cached_path_is_given_up_only_for_more():
    # both share 1 and 2; the first finds 3 4 5 in the cache, and would pay for going with the second
    apart = families([(1, 2, 3, 4, 5), (1, 2, 6)], stored=[(3, 4, 5)])
    assert apart.members == ((0,), (1,))
    assert apart.orders[0] == (3, 4, 5, 1, 2)
    together = families([(1, 2, 3, 4, 5), (1, 2, 6)], stored=[(3,)])
    assert together.members == ((0, 1),)
    assert together.orders[0] == (1, 2, 3, 4, 5)


def test_a_family_and_a_loner_follow_one_cached_path_as_far_as_each_can():
    found = families([(1, 2, 3), (4, 2, 1), (2, 1, 5, 6)], stored=[(2, 5, 6)])
    assert found.members == ((0, 1), (2,))
    assert found.orders == ((2, 1, 3), (2, 1, 4), (2, 5, 6, 1))


def test_equal_sets_take_one_order():
    found = families([(1, 2, 3), (3, 2, 1), (2, 3, 1)])
    assert found.members == ((0, 1, 2),)
    assert set(found.orders) == {(1, 2, 3)}
    assert found.shared == (3, 3, 3)


def test_nothing_and_empty_contexts():
    assert families([]) == Families((), (), ())
    assert families([(), (1,), ()]).orders == ((), (1,), ())


def merged_by_force(contexts: Sequence[Path], weights: dict[int, int], cached: Cached) -> list[list[int]]:
    """Return the members of each family: before every merge all pairs are looked at."""

    def tokens(blocks: Sequence[int]) -> int:
        return sum(weights[block] for block in blocks)

    clusters: dict[int, tuple[Path, list[int]]] = {
        number: (context, [number]) for number, context in enumerate(contexts)
    }
    number = len(contexts)
    while True:
        best = (0, 0, 0)
        for a, b in combinations(sorted(clusters), 2):
            first, second = sorted((clusters[a], clusters[b]), key=lambda cluster: cluster[1][0])
            common = tuple(block for block in first[0] if block in second[0])
            ordered = tuple(block for block in clusters[a][0] if block in clusters[b][0])
            gain = tokens(common) + tokens(cached(ordered))
            gain -= tokens(cached(first[0])) + tokens(cached(second[0]))
            best = min(best, (-gain, a, b))
        if not best[0]:
            return sorted(members for _, members in clusters.values())
        first, second = sorted((clusters.pop(best[1]), clusters.pop(best[2])), key=lambda cluster: cluster[1][0])
        clusters[number] = (tuple(block for block in first[0] if block in second[0]), first[1] + second[1])
        number += 1


@settings(max_examples=400)
@given(st.lists(paths, max_size=9), st.lists(paths, max_size=5), weightings)
def test_merges_equal_those_by_force(contexts: list[Path], stored: list[Path], weighting: list[int]):
    weights = dict(enumerate(weighting))
    cached = cache_of(stored, weights)
    found = cached_families(contexts, weights, cached)
    assert sorted(list(members) for members in found.members) == merged_by_force(contexts, weights, cached)
    for context, order, shared in zip(contexts, found.orders, found.shared, strict=True):
        assert sorted(order) == sorted(context)
        assert 0 <= shared <= len(order)


@settings(max_examples=200)
@given(st.lists(paths, max_size=9), st.lists(paths, max_size=5), weightings)
@example([(0, 4, 8, 2, 5, 6), (4, 0, 1, 8, 2, 6), (2, 6, 3, 0, 8)], [(0, 5)], [1, 1, 1, 1, 1, 2, 1, 1, 1])
def test_members_share_what_their_orders_begin_with(contexts: list[Path], stored: list[Path], weighting: list[int]):
    found = families(contexts, stored, dict(enumerate(weighting)))
    for members in found.members:
        for before, after in zip(members, members[1:], strict=False):
            assert shared_prefix(found.orders[before], found.orders[after])
    for context, order, shared in zip(contexts, found.orders, found.shared, strict=True):
        rest = [block for block in context if block not in order[:shared]]
        assert list(order[shared:]) == rest  # by rank: neighbours may have more in common by chance


def shared_prefix(first: Path, second: Path) -> list[int]:
    common = []
    for block, other in zip(first, second, strict=False):
        if block != other:
            break
        common.append(block)
    return common
