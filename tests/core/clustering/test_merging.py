"""The greedy tree: what the chain and the join make equals what brute force makes, ties included."""

import random
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextpilot_core.clustering.merging as greedy
import contextpilot_core.clustering.merging_rounds as join
from contextpilot_core.clustering.merging import NeighbourChain, greedy_forest, greedy_merges

BLOCKS = 9
WEIGHTS = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3]
batches = st.lists(st.lists(st.integers(0, BLOCKS - 1), max_size=7, unique=True), max_size=12)
weightings = st.lists(st.sampled_from([0, 1, 1, 2, 5]), min_size=BLOCKS, max_size=BLOCKS)

Merges = list[tuple[int, int]]


def merge_by_force(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> Merges:
    """Look at all pairs before every merge."""
    contents = {label: set(context) for label, context in enumerate(contexts)}
    merges: Merges = []
    while True:
        best, kept, joining = 0, -1, -1
        for a, b in combinations(sorted(contents), 2):
            shared = sum(weights[block] for block in contents[a] & contents[b])
            if shared > best:
                best, kept, joining = shared, a, b
        if not best:
            return merges
        contents[kept] &= contents.pop(joining)
        merges.append((kept, joining))


def by_force(monkeypatch: pytest.MonkeyPatch, contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> object:
    with monkeypatch.context() as patch:
        patch.setattr("contextpilot_core.clustering.merging.greedy_merges", merge_by_force)
        return greedy_forest(contexts, weights)


@settings(max_examples=200, deadline=None)
@given(batches, weightings)
def test_forest_equals_brute_force(contexts: list[list[int]], weights: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert greedy_forest(contexts, weights) == by_force(patch, contexts, weights)


@settings(max_examples=200, deadline=None)
@given(batches, weightings, st.lists(st.integers(0, BLOCKS - 1), min_size=1, max_size=3, unique=True))
def test_forest_equals_brute_force_where_some_blocks_stand_in_all(
    contexts: list[list[int]], weights: list[int], everywhere: list[int]
) -> None:
    contexts = [[*everywhere, *(block for block in context if block not in everywhere)] for context in contexts]
    with pytest.MonkeyPatch.context() as patch:
        assert greedy_forest(contexts, weights) == by_force(patch, contexts, weights)


@settings(max_examples=200, deadline=None)
@given(batches, weightings, st.data())
def test_forest_is_the_same_however_the_work_is_cut(
    contexts: list[list[int]], weights: list[int], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        expected = by_force(patch, contexts, weights)
        for module, name, values in (
            (greedy, "_WIDE", [3, 64]),
            (greedy, "_STEP", [0.5, 0.95]),
            (greedy, "_SPARSE", [0, 50]),
            (greedy, "_BEARABLE", [0, 1_300]),
            (join, "_PAIRS", [1, 7]),
            (join, "_COLUMN_PAIRS", [1, 100]),
            (join, "_MAX_LINKS", [2, 1 << 20]),
        ):
            patch.setattr(module, name, data.draw(st.sampled_from(values), label=name))
        assert greedy_forest(contexts, weights) == expected


def random_contexts(seed: int, count: int, blocks: int, width: int) -> list[list[int]]:
    source = random.Random(seed)
    sets = {frozenset(source.sample(range(blocks), source.randint(1, width))) for _ in range(count)}
    return sorted(sorted(context) for context in sets)


@pytest.mark.parametrize(("blocks", "width"), [(30, 6), (200, 12), (1_000, 8)])
@pytest.mark.parametrize("equal_weights", [True, False])
def test_join_equals_chain_on_larger_batches(blocks: int, width: int, equal_weights: bool) -> None:
    contexts = random_contexts(blocks, 700, blocks, width)
    weights = [4] * blocks if equal_weights else [1 + number * 7 % 90 for number in range(blocks)]
    chain = NeighbourChain(contexts, weights).run()
    merges = greedy_merges(contexts, weights)
    assert sorted(joining for _, joining in merges) == sorted(joining for _, joining in chain)
    with pytest.MonkeyPatch.context() as patch:
        forest = greedy_forest(contexts, weights)
        patch.setattr("contextpilot_core.clustering.merging.greedy_merges", lambda *_: chain)
        assert greedy_forest(contexts, weights) == forest


def test_greedy_gives_one_set_the_order_of_its_first_list() -> None:
    forest = greedy_forest([[3, 1, 2], [1, 2, 3]], WEIGHTS)
    assert forest.orders == ((3, 1, 2), (3, 1, 2))
    assert forest.paths == ((0,), (0,))


def test_greedy_goes_by_tokens_not_by_blocks() -> None:
    forest = greedy_forest([[0, 1, 2], [0, 1, 5], [2, 6]], [1, 1, 9, 1, 1, 1, 1])
    assert forest.orders == ((2, 0, 1), (0, 1, 5), (2, 6))


def test_own_blocks_by_mean_rank_ties_by_first_appearance() -> None:
    forest = greedy_forest([[4, 3, 2, 1], [2, 3, 4, 0]], WEIGHTS)
    assert forest.orders == ((4, 3, 2, 1), (4, 3, 2, 0))
    forest = greedy_forest([[4, 3, 2, 1], [2, 4, 3, 0]], WEIGHTS)
    assert forest.orders == ((4, 2, 3, 1), (4, 2, 3, 0))  # mean ranks 0.5, 1, 1.5


def test_thousands_of_nested_and_of_equal_prefixes() -> None:
    nested = [list(range(size)) for size in range(1, 150)]
    assert greedy_forest(nested, [1] * 150).orders[-1] == tuple(range(149))
    header = [[0, number] for number in range(1, 3_000)]
    forest = greedy_forest(header, [1] * 3_000)
    assert {len(path) for path in forest.paths} == {2}
    assert set(forest.shared) == {1}


def test_blocks_without_tokens_never_merge() -> None:
    assert greedy_merges([[0], [0, 1], [0, 2]], [0, 3, 3]) == []
    assert NeighbourChain([[0], [0, 1], [0, 2]], [0, 3, 3]).run() == []


def test_nothing() -> None:
    assert greedy_merges([], []) == []
    assert greedy_merges([[]], [1]) == []
    assert greedy_merges([[], [0]], [1]) == []
