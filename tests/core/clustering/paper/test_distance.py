"""Eq. 1, for all pairs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

import contextpilot_core.clustering.paper.distance as module
from contextpilot_core.clustering.paper.distance import pairwise_distances
from tests.core.plain_distance import distance

contexts = st.lists(st.lists(st.integers(0, 9), max_size=7, unique=True), max_size=10)
alphas = st.sampled_from([0.001, 0.004, 0.01])


A, B, C, D = [3, 5, 1, 7], [2, 6, 3, 5], [3, 5, 8, 9], [2, 6, 4, 0]


@pytest.mark.parametrize("alpha", [0.001, 0.01])
def test_worked_example(alpha: float) -> None:
    assert pairwise_distances([B, D], alpha).tolist() == [0.5]
    assert pairwise_distances([A, B], alpha).tolist() == pytest.approx([0.5 + 2 * alpha])
    assert pairwise_distances([B, C], alpha).tolist() == pytest.approx([0.5 + 2 * alpha])


@pytest.mark.parametrize(("a", "b"), [([], []), ([], [1]), ([1, 2], [3])])
def test_nothing_shared_is_distance_one(a: list[int], b: list[int]) -> None:
    assert pairwise_distances([a, b]).tolist() == [1.0]


@settings(deadline=None)
@given(contexts, alphas)
def test_all_pairs_are_as_the_equation_says(given_contexts: list[list[int]], alpha: float) -> None:
    expected = [distance(a, b, alpha) for place, a in enumerate(given_contexts) for b in given_contexts[place + 1 :]]
    assert pairwise_distances(given_contexts, alpha).tolist() == expected


@settings(deadline=None)
@given(contexts)
def test_chunks_change_nothing(given_contexts: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", 1)
        chunked = pairwise_distances(given_contexts)
    assert chunked.tolist() == pairwise_distances(given_contexts).tolist()


@settings(deadline=None)
@given(contexts)
def test_distances_are_symmetric_and_zero_to_oneself(given_contexts: list[list[int]]) -> None:
    square, turned = (squareform(pairwise_distances(ids)) for ids in (given_contexts, given_contexts[::-1]))
    assert turned[::-1, ::-1].tolist() == square.tolist()
    for context in given_contexts:
        assert pairwise_distances([context, context]).tolist() == [0.0 if context else 1.0]


def test_order_is_the_one_of_pdist() -> None:
    square = squareform(pairwise_distances([A, B, C, D]))
    assert square[1, 3] == square[3, 1] == 0.5
    assert square[0, 3] == 1.0


def test_ids_may_be_large() -> None:
    assert pairwise_distances([[2**40, 7], [7, 2**40]]).tolist() == [0.001]
