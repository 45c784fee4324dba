"""Both strategies: worked examples, the shape of the result, edge cases."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.clustering.greedy import greedy_forest
from contextpilot_core.clustering.orders import depth_first
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.values import Arranged
from contextpilot_core.errors import TooManyContextsError

BLOCKS = 10
WEIGHTS = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3]
C1, C2, C3 = [2, 1, 3], [2, 6, 1], [4, 1, 0]

Forest = Callable[[Sequence[Sequence[int]]], Arranged]
contexts = st.lists(st.lists(st.integers(0, BLOCKS - 1), max_size=6, unique=True), max_size=12)


def paper_forest(
    given_contexts: Sequence[Sequence[int]], *, alpha: float = 0.001, linkage: str = "average"
) -> Arranged:
    return ContextTree(alpha).build({str(number): ids for number, ids in enumerate(given_contexts)}, linkage=linkage)


strategies: dict[str, Forest] = {
    "greedy": lambda given_contexts: greedy_forest(given_contexts, WEIGHTS),
    "paper-average": paper_forest,
    "paper-complete": lambda given_contexts: paper_forest(given_contexts, linkage="complete"),
    "paper-single": lambda given_contexts: paper_forest(given_contexts, alpha=0.01, linkage="single"),
}


@pytest.fixture(scope="module", params=strategies.values(), ids=strategies.keys())
def forest_of(request: pytest.FixtureRequest) -> Forest:
    strategy: Forest = request.param
    return strategy


def test_worked_example(forest_of: Forest) -> None:
    forest = forest_of([C1, C2, C3])
    assert forest.orders == ((1, 2, 3), (1, 2, 6), (1, 4, 0))
    assert forest.paths == ((0, 0, 0), (0, 0, 1), (0, 1))
    assert forest.shared == (2, 2, 1)


def test_nothing_and_empty_contexts(forest_of: Forest) -> None:
    assert forest_of([]) == Arranged((), (), ())
    assert forest_of([[]]) == Arranged(((),), ((0,),), (0,))
    forest = forest_of([[], [1, 2], [], [2, 3]])  # an empty first context in a batch
    assert forest.orders == ((), (2, 1), (), (2, 3))
    assert forest.shared == (0, 1, 0, 1)
    assert forest.paths[0] == forest.paths[2] == (0,)


def test_one_context_keeps_its_ranking(forest_of: Forest) -> None:
    assert forest_of([[4, 1, 3]]) == Arranged(((4, 1, 3),), ((0,),), (0,))


def test_nothing_shared_moves_nothing(forest_of: Forest) -> None:
    forest = forest_of([[9, 1], [2, 3], [8, 4]])
    assert forest.orders == ((9, 1), (2, 3), (8, 4))
    assert forest.paths == ((0,), (1,), (2,))
    assert forest.shared == (0, 0, 0)


def test_a_context_equal_to_an_intersection_has_its_own_leaf(forest_of: Forest) -> None:
    forest = forest_of([[1, 2, 3], [1, 2, 4], [1, 2]])
    assert forest.orders == ((1, 2, 3), (1, 2, 4), (1, 2))
    assert forest.paths == ((0, 0), (0, 1), (0, 2))
    assert forest.shared == (2, 2, 2)


def test_equal_contexts_share_a_leaf_and_all_their_blocks(forest_of: Forest) -> None:
    forest = forest_of([[1, 2], [7], [1, 2]])
    assert forest.paths[0] == forest.paths[2]
    assert forest.shared == (2, 0, 2)
    assert depth_first(forest.paths) == [0, 2, 1]


def test_greedy_gives_one_set_the_order_of_its_first_list() -> None:
    forest = greedy_forest([[3, 1, 2], [1, 2, 3]], WEIGHTS)
    assert forest.orders == ((3, 1, 2), (3, 1, 2))
    assert forest.paths == ((0,), (0,))


def test_paper_orders_lists_of_one_set_alike() -> None:
    forest = paper_forest([[3, 1, 2], [1, 2, 3]])
    assert forest.orders == ((1, 3, 2), (1, 3, 2))  # mean ranks 0.5, 1, 1.5
    assert forest.paths == ((0, 0), (0, 1))


def test_greedy_goes_by_tokens_not_by_blocks() -> None:
    forest = greedy_forest([[0, 1, 2], [0, 1, 5], [2, 6]], [1, 1, 9, 1, 1, 1, 1])
    assert forest.orders == ((2, 0, 1), (0, 1, 5), (2, 6))


def test_own_blocks_by_mean_rank_ties_by_first_appearance() -> None:
    forest = greedy_forest([[4, 3, 2, 1], [2, 3, 4, 0]], WEIGHTS)
    assert forest.orders == ((4, 3, 2, 1), (4, 3, 2, 0))
    forest = greedy_forest([[4, 3, 2, 1], [2, 4, 3, 0]], WEIGHTS)
    assert forest.orders == ((4, 2, 3, 1), (4, 2, 3, 0))  # mean ranks 0.5, 1, 1.5


@settings(deadline=None)
@given(given_contexts=contexts)
def test_shape(forest_of: Forest, given_contexts: list[list[int]]) -> None:
    forest = forest_of(given_contexts)
    assert [sorted(order) for order in forest.orders] == [sorted(context) for context in given_contexts]
    for order, path, shared in zip(forest.orders, forest.paths, forest.shared, strict=True):
        assert len(path) <= len(order) + 1
        family = [other for other, place in zip(forest.orders, forest.paths, strict=True) if place[:-1] == path[:-1]]
        twins = [other for other, place in zip(forest.orders, forest.paths, strict=True) if place == path]
        assert set(twins) == {order}
        assert shared == len(order) if len(twins) > 1 else shared <= len(order)
        if len(twins) == 1:
            assert {other[:shared] for other in family} == {order[:shared]}


@settings(deadline=None)
@given(given_contexts=contexts)
def test_every_subtree_shares_its_prefix(forest_of: Forest, given_contexts: list[list[int]]) -> None:
    forest = forest_of(given_contexts)
    known: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for order, path in zip(forest.orders, forest.paths, strict=True):
        for depth in range(len(path)):
            known.setdefault(path[:depth], set()).add(order)
    for path, orders in known.items():
        common = next(
            end for end in range(99) if len({order[: end + 1] for order in orders}) > 1 or end >= min(map(len, orders))
        )
        assert common >= len(path)  # each node below the root adds at least one block


def test_too_many_contexts_for_distances_name_the_greedy_strategy() -> None:
    with pytest.raises(TooManyContextsError, match="greedy"):
        paper_forest([[1]] * 20_001)


def test_thousands_of_nested_and_of_equal_prefixes() -> None:
    nested = [list(range(size)) for size in range(1, 150)]
    assert greedy_forest(nested, [1] * 150).orders[-1] == tuple(range(149))
    header = [[0, number] for number in range(1, 3_000)]
    forest = greedy_forest(header, [1] * 3_000)
    assert {len(path) for path in forest.paths} == {2}
    assert set(forest.shared) == {1}


def test_same_result_in_processes_with_different_hash_seeds() -> None:
    code = (
        "import random; from contextpilot_core.clustering.greedy import greedy_forest; "
        "from contextpilot_core.clustering.paper.tree import ContextTree;"
        "r = random.Random(1); c = [r.sample(range(40), 8) for _ in range(60)];"
        "print(greedy_forest(c, [3] * 40), ContextTree().build({str(n): ids for n, ids in enumerate(c)}))"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(results) == 1
