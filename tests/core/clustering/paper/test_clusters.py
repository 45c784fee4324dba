"""The paper's strategy: hierarchical clustering by distance."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contextpilot_core.clustering.hierarchy import build_tree, forest_of
from contextpilot_core.clustering.paper.clusters import paper_tree
from contextpilot_core.errors import TooManyContextsError
from tests.core.plain_distance import distance

ALPHA = 0.007

PLANS = """
import sys
from contextpilot_core import ContextRequest, EngineConfig, ReuseEngine
import contextpilot_core.replay, contextpilot_core.diagnose, contextpilot_core.testing
loaded = [any(name.partition(".")[0] == "scipy" for name in sys.modules)]
for strategy in ("greedy", "none", "paper"):
    engine = ReuseEngine(EngineConfig(strategy=strategy))
    engine.plan_batch([ContextRequest(blocks=blocks) for blocks in (["a", "b"], ["b", "c"], ["c", "a"])])
    engine.plan(["b", "a"])
    loaded.append("scipy.cluster.hierarchy" in sys.modules)
print(loaded)
"""


def test_the_clustering_library_is_loaded_for_this_strategy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PLANS], capture_output=True, text=True)
    assert done.stdout == "[False, False, False, True]\n", done.stderr


def test_paper_orders_lists_of_one_set_alike() -> None:
    forest = forest_of(paper_tree([[3, 1, 2], [1, 2, 3]], alpha=0.001, linkage="average"))
    assert forest.orders == ((1, 3, 2), (1, 3, 2))  # mean ranks 0.5, 1, 1.5
    assert forest.paths == ((0, 0), (0, 1))


def test_too_many_contexts_for_distances_name_the_greedy_strategy() -> None:
    with pytest.raises(TooManyContextsError, match=r"20001 contexts.*20000.*greedy"):
        paper_tree([[1]] * 20_001, alpha=0.001, linkage="average")


def test_a_tree_by_hand() -> None:
    tree = paper_tree([(2, 1, 3), (2, 6, 1), (4, 1, 0), (2, 6, 1)], alpha=0.001, linkage="average")
    assert tree.parents == [-1, 0, 1, 2, 2, 1]
    assert tree.own == [(), (1,), (2,), (3,), (6,), (4, 0)]
    assert tree.leaves == [3, 4, 5, 4]


def merged_by_force(contexts: Sequence[Sequence[int]], linkage: str) -> list[tuple[int, int]]:
    """Look at all pairs of clusters before every merge; no answer where two pairs are as near."""
    pick = {"single": min, "complete": max, "average": lambda found: sum(found) / len(found)}[linkage]
    clusters = {node: [context] for node, context in enumerate(contexts)}
    merges: list[tuple[int, int]] = []
    while len(clusters) > 1:
        pairs = sorted(
            (pick([distance(a, b, ALPHA) for a in clusters[one] for b in clusters[other]]), one, other)
            for one, other in combinations(clusters, 2)
        )
        assume(len(pairs) == 1 or pairs[0][0] < pairs[1][0] - 1e-9)
        _, one, other = pairs[0]
        merges.append((one, other))
        clusters[len(contexts) + len(merges) - 1] = clusters.pop(one) + clusters.pop(other)
    return merges


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=2, max_size=7, unique=True),
    st.sampled_from(["average", "complete", "single"]),
)
def test_the_tree_is_that_of_hierarchical_clustering(runs: list[tuple[int, int]], linkage: str) -> None:
    contexts = [tuple(range(start, start + length)) for start, length in runs]
    expected = build_tree(contexts, range(len(contexts)), merged_by_force(contexts, linkage))
    assert paper_tree(contexts, alpha=ALPHA, linkage=linkage) == expected
