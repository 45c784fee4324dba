"""Figures of reuse, and the bound on what any order can save."""

from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.replay.figures import reuse, upper_bound
from contextpilot_core.replay.traces import load_corpus, load_trace

WEIGHTS = [3, 1, 0, 7, 2, 5]
contexts = st.lists(st.lists(st.integers(0, 5), max_size=5, unique=True), max_size=7)


def test_shares() -> None:
    assert reuse(1, 4) == 0.25
    assert reuse(1 - 3, 4) == -0.5
    assert reuse(0, 0) == reuse(-5, 0) == 0.0


def spanning_forest(given_contexts: list[list[int]]) -> int:
    """Kruskal's algorithm over all pairs."""
    group = list(range(len(given_contexts)))
    pairs = [
        (sum(WEIGHTS[block] for block in {*given_contexts[a]} & {*given_contexts[b]}), a, b)
        for a, b in combinations(range(len(given_contexts)), 2)
    ]
    total = 0
    for shared, a, b in sorted(pairs, reverse=True):
        if group[a] != group[b]:
            total += shared
            group = [group[a] if member == group[b] else member for member in group]
    return total


@settings(deadline=None)
@given(contexts)
def test_bound_is_the_maximum_spanning_forest(given_contexts: list[list[int]]) -> None:
    assert upper_bound(given_contexts, WEIGHTS) == spanning_forest(given_contexts)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=3, unique=True), max_size=3))
def test_no_order_saves_more(given_contexts: list[list[int]]) -> None:
    bound = upper_bound(given_contexts, WEIGHTS)
    assert bound is not None

    def orders(left: list[list[int]]) -> list[list[tuple[int, ...]]]:
        if not left:
            return [[]]
        return [[first, *rest] for first in permutations(left[0]) for rest in orders(left[1:])]

    for schedule in permutations(given_contexts):
        for sent in orders(list(schedule)):
            cached: set[tuple[int, ...]] = set()
            saved = 0
            for order in sent:
                prefixes = [order[: end + 1] for end in range(len(order))]
                saved += sum(WEIGHTS[prefix[-1]] for prefix in prefixes if prefix in cached)
                cached.update(prefixes)
            assert saved <= bound


def test_nothing_and_too_much() -> None:
    assert upper_bound([], []) == 0
    assert upper_bound([[], []], [1]) == 0
    assert upper_bound([[0]] * 20_001, [1]) is None


@pytest.mark.parametrize(
    ("trace", "percent"),
    [
        ("multihoprag.trace.bm25", 46.2),
        ("qasper.trace.bm25", 37.0),
        ("qasper.trace.dense", 42.0),
        ("narrativeqa.trace.bm25", 53.2),
        ("narrativeqa.trace.dense", 56.1),
    ],
)
def test_bounds_of_the_traces(data_dir: Path, trace: str, percent: float) -> None:
    corpus = load_corpus([data_dir / f"{trace.partition('.')[0]}.corpus.jsonl.gz"])
    items = [list(dict.fromkeys(item.doc_ids[:15])) for item in load_trace(data_dir / f"{trace}.jsonl.gz")]
    number = {doc_id: place for place, doc_id in enumerate(corpus)}
    weights = [document.tokens for document in corpus.values()]
    given_contexts = [[number[doc_id] for doc_id in item] for item in items]
    bound = upper_bound(given_contexts, weights)
    assert bound is not None
    total = sum(weights[block] for context in given_contexts for block in context)
    assert round(100 * bound / total, 1) == percent
