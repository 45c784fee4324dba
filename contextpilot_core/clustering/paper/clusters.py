"""Clustering of contexts: which contexts share a prefix, and in which order each takes its blocks.

Two strategies make the same kind of result. ``greedy_forest`` (ours) merges what saves most tokens, ``paper_forest``
(algorithm 4) merges by distance.
"""

from collections.abc import Sequence

from scipy.cluster.hierarchy import linkage as scipy_linkage

from contextpilot_core.clustering.merge_tree import MergeForest, MergeTree, _leaves, _same, build_tree, forest_of
from contextpilot_core.clustering.paper.distance import check_size, pairwise_distances


def paper_forest(contexts: Sequence[Sequence[int]], *, alpha: float = 0.001, linkage: str = "average") -> MergeForest:
    """Merge by distance (eq. 1) with hierarchical clustering (docs: "Strategy paper", algorithm 4).

    Contexts with the same list of blocks share one leaf. ``linkage``: "average", "complete" or "single".

    Raises:
        TooManyContextsError: more than 20,000 contexts.
    """
    return forest_of(paper_tree(contexts, alpha=alpha, linkage=linkage))


def paper_tree(contexts: Sequence[Sequence[int]], *, alpha: float, linkage: str) -> MergeTree:
    """Return the tree behind `paper_forest`, for callers that go on with it. Raises as `paper_forest` does."""
    check_size(len(contexts))
    leaf_of = _same(map(tuple, contexts))
    leaves = _leaves(contexts, leaf_of)
    merges: list[tuple[int, int, float]] = []
    if len(leaves) > 1:
        steps = scipy_linkage(pairwise_distances(leaves, alpha), method=linkage)
        merges = [(int(left), int(right), float(distance)) for left, right, distance, _ in steps]
    return build_tree(leaves, leaf_of, merges)
