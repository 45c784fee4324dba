"""The self-join and the rounds of merges against looking at every pair."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextpilot_core.clustering.merging_rounds as module
from contextpilot_core.clustering.arrays import IntArray
from contextpilot_core.clustering.merging_rounds import Links, merge_rounds, similar_pairs

MANY = 1 << 30
batches = st.lists(st.frozensets(st.integers(0, 7), max_size=6), min_size=1, max_size=12, unique=True)
weightings = st.lists(st.sampled_from([0, 1, 1, 2, 5]), min_size=8, max_size=8)
thresholds = st.integers(1, 9)
Contents = Sequence[frozenset[int]]


def table(contents: Contents, weights: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Return rows, filled up with a block without tokens that comes last, and the tokens by block."""
    width = max(1, *map(len, contents))
    rows = [[*sorted(content), *[len(weights)] * (width - len(content))] for content in contents]
    return np.array(rows, dtype=np.int64), np.array([*weights, 0], dtype=np.int64)


def pairs_by_force(contents: Contents, weights: Sequence[int], threshold: int) -> dict[tuple[int, int], int]:
    shared = {
        (a, b): sum(weights[block] for block in contents[a] & contents[b])
        for a, b in combinations(range(len(contents)), 2)
    }
    return {pair: tokens for pair, tokens in shared.items() if tokens >= threshold}


def as_pairs(links: Links | None) -> dict[tuple[int, int], int]:
    assert links is not None
    pairs = list(zip(links.left.tolist(), links.right.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, links.shared.tolist(), strict=True))


def test_pairs_by_hand():
    rows, tokens = table([frozenset({0, 1, 2}), frozenset({1, 2}), frozenset({0, 3}), frozenset()], [5, 1, 1, 9])
    assert as_pairs(similar_pairs(rows, tokens, 1, MANY)) == {(0, 1): 2, (0, 2): 5}
    assert as_pairs(similar_pairs(rows, tokens, 3, MANY)) == {(0, 2): 5}
    assert as_pairs(similar_pairs(rows, tokens, 6, MANY)) == {}


@settings(max_examples=300, deadline=None)
@given(batches, weightings, thresholds, st.data())
def test_pairs_equal_those_by_force_however_the_work_is_cut(
    contents: Contents, weights: list[int], threshold: int, data: st.DataObject
):
    rows, tokens = table(contents, weights)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_COLUMN_PAIRS", "_PAIRS", "_TABLE"):
            patch.setattr(module, name, data.draw(st.sampled_from([1, 10, 1 << 13]), label=name))
        found = as_pairs(similar_pairs(rows, tokens, threshold, MANY))
    assert found == pairs_by_force(contents, weights, threshold)


@settings(max_examples=100, deadline=None)
@given(batches, weightings, thresholds, st.integers(0, 30), st.integers(0, 30))
def test_too_many_pairs_give_none_and_never_a_part(
    contents: Contents, weights: list[int], threshold: int, most: int, links: int
):
    rows, tokens = table(contents, weights)
    expected = pairs_by_force(contents, weights, threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_LINKS", links)
        found = similar_pairs(rows, tokens, threshold, most)
    if found is not None:
        assert as_pairs(found) == expected
        assert len(expected) <= min(most, links)


def merged(contents: Contents, weights: Sequence[int], threshold: int) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Return the merges of the join, and the rows that it leaves."""
    rows, tokens = table(contents, weights)
    links = similar_pairs(rows, tokens, threshold, MANY)
    assert links is not None
    return merge_rounds(rows, tokens, threshold, links), rows.tolist()


def test_merges_by_hand():
    contents = [frozenset({0, 1, 2}), frozenset({1, 2, 3}), frozenset({2, 4}), frozenset({5})]
    merges, rows = merged(contents, [1, 1, 1, 1, 1, 1], 1)
    assert merges == [(0, 1), (0, 2)]
    assert rows[0] == [2, 6, 6]
    assert rows[3] == [5, 6, 6]
    merges, rows = merged(contents, [1, 1, 1, 1, 1, 1], 2)
    assert merges == [(0, 1)]
    assert rows[0] == [1, 2, 6]


def test_thousands_that_share_one_block_need_one_round(monkeypatch: pytest.MonkeyPatch):
    rounds = []
    follow = module._follow
    monkeypatch.setattr(module, "_follow", lambda *given: rounds.append(0) or follow(*given))
    contents = [frozenset({0}), *(frozenset({0, number}) for number in range(1, 2_000))]
    merges, rows = merged(contents, [1] * 2_000, 1)
    assert sorted(merges) == [(0, number) for number in range(1, 2_000)]
    assert rows[0] == [0, 2_000]
    assert len(rounds) == 1


def clusters_by_force(contents: Contents, weights: Sequence[int], threshold: int) -> dict[int, frozenset[int]]:
    """Merge the pair that shares most, ties by labels, while it shares enough: content by label."""
    left = dict(enumerate(contents))
    while True:
        shared = [(-sum(weights[block] for block in left[a] & left[b]), a, b) for a, b in combinations(sorted(left), 2)]
        tokens, kept, joining = min(shared, default=(0, 0, 0))
        if -tokens < threshold:
            return left
        left[kept] = left[kept] & left.pop(joining)


@settings(max_examples=300, deadline=None)
@given(batches, weightings, thresholds)
def test_merges_lead_to_the_clusters_by_force(contents: Contents, weights: list[int], threshold: int):
    merges, rows = merged(contents, weights, threshold)
    expected = clusters_by_force(contents, weights, threshold)
    joined = [joining for _, joining in merges]
    assert len(set(joined)) == len(joined)
    assert set(range(len(contents))) - set(joined) == set(expected)
    assert all(kept < joining for kept, joining in merges)
    for label, content in expected.items():
        assert sorted(block for block in rows[label] if block < len(weights)) == sorted(content)
