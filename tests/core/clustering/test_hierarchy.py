"""The tree from merges against a plain one; what both strategies make of it: shape, worked examples, edge cases."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.clustering.hierarchy import MergeTree, build_tree
from contextpilot_core.clustering.hierarchy import forest_of as forest_of_tree
from contextpilot_core.clustering.merging import greedy_forest
from contextpilot_core.clustering.orders import depth_first
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.values import Arranged

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


def test_same_result_in_processes_with_different_hash_seeds() -> None:
    code = (
        "import random; from contextpilot_core.clustering.merging import greedy_forest; "
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


# -- the tree itself, from merges that are given ----------------------------------------------------------------------


def test_a_tree_by_hand() -> None:
    """Merges 0 with 2, then that with 1: the second adds nothing to share, so all three are children of one node."""
    leaves = [(7, 1, 2, 3), (2, 1, 8), (2, 9, 3, 1, 7)]
    tree = build_tree(leaves, [0, 1, 2, 1], [(2, 0), (1, 3)])
    assert tree == MergeTree(
        parents=[-1, 0, 1, 2, 2, 1],
        numbers=[0, 0, 0, 0, 1, 1],
        # ranks of 1, 2 over all three: 1 + 1 + 3, 2 + 0 + 0; of 7, 3 over the first and the last: 0 + 4, 3 + 2
        own=[(), (2, 1), (7, 3), (), (9,), (8,)],
        leaves=[3, 5, 4, 5],
    )
    assert forest_of_tree(tree) == Arranged(
        orders=((2, 1, 7, 3), (2, 1, 8), (2, 1, 7, 3, 9), (2, 1, 8)),
        paths=((0, 0, 0), (0, 1), (0, 0, 1), (0, 1)),
        shared=(4, 3, 4, 3),
    )


def test_a_node_that_shares_no_more_than_the_one_above_is_dissolved() -> None:
    tree = build_tree([(1, 2), (1, 3), (1, 4)], [0, 1, 2], [(0, 1), (3, 2)])
    assert (tree.parents, tree.own) == ([-1, 0, 1, 1, 1], [(), (1,), (2,), (3,), (4,)])
    tree = build_tree([(1, 2), (3, 4), (5,)], [0, 1, 2], [(0, 1), (3, 2)])
    assert (tree.parents, tree.own) == ([-1, 0, 0, 0], [(), (1, 2), (3, 4), (5,)])


class Plain:
    """A tree of contexts by its definition: every merge is a node, and those that add nothing are left out."""

    def __init__(self, leaves: Sequence[Sequence[int]], merges: Sequence[tuple[int, int]]) -> None:
        self.leaves, self.merges = leaves, merges
        self.tree = MergeTree([-1], [0], [()], [])
        self.place: dict[int, int] = {}
        merged = {node for pair in merges for node in pair}
        top = [node for node in range(len(leaves) + len(merges)) if node not in merged]
        self.visit(top, frozenset(), 0)

    def members(self, node: int) -> list[int]:
        if node < len(self.leaves):
            return [node]
        left, right = self.merges[node - len(self.leaves)]
        return sorted(self.members(left) + self.members(right))

    def content(self, node: int) -> frozenset[int]:
        return frozenset.intersection(*(frozenset(self.leaves[leaf]) for leaf in self.members(node)))

    def shown(self, nodes: Sequence[int], above: frozenset[int]) -> list[int]:
        found: list[int] = []
        for node in nodes:
            if node >= len(self.leaves) and self.content(node) == above:
                found += self.shown(self.merges[node - len(self.leaves)], above)
            else:
                found.append(node)
        return sorted(found, key=self.members)

    def visit(self, nodes: Sequence[int], above: frozenset[int], parent: int) -> None:
        for number, node in enumerate(self.shown(nodes, above)):
            here = len(self.tree.parents)
            self.tree.parents.append(parent)
            self.tree.numbers.append(number)
            members = [self.leaves[leaf] for leaf in self.members(node)]
            own = [block for block in members[0] if block in self.content(node) - above]
            if node < len(self.leaves):
                self.place[node] = here
            else:
                own.sort(key=lambda block: sum(member.index(block) for member in members))
            self.tree.own.append(tuple(own))
            if node >= len(self.leaves):
                self.visit(self.merges[node - len(self.leaves)], self.content(node), here)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6, unique=True).map(tuple), max_size=8, unique=True),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=7),
    st.lists(st.integers(0, 99), max_size=4),
)
def test_any_merges_give_the_plain_tree(
    leaves: list[tuple[int, ...]], picks: list[tuple[int, int]], twins: list[int]
) -> None:
    left_over, merges = list(range(len(leaves))), []
    for first, second in picks:
        if len(left_over) > 1:
            left = left_over.pop(first % len(left_over))
            right = left_over.pop(second % len(left_over))
            left_over.append(len(leaves) + len(merges))
            merges.append((left, right))
    leaf_of = list(range(len(leaves))) + [twin % len(leaves) for twin in twins if leaves]
    plain = Plain(leaves, merges)
    plain.tree.leaves.extend(plain.place[leaf] for leaf in leaf_of)
    assert build_tree(leaves, leaf_of, merges) == plain.tree
