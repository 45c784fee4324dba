"""Clusters of contexts by distance."""

from collections.abc import Sequence

from scipy.cluster.hierarchy import linkage as scipy_linkage

from contextpilot_core.clustering.merge_tree import MergeTree, build_tree, first_of_each, number_by_first
from contextpilot_core.clustering.paper.distance import check_size, pairwise_distances


def paper_tree(contexts: Sequence[Sequence[int]], *, alpha: float, linkage: str) -> MergeTree:
    """Merge by distance (eq. 1) with hierarchical clustering (docs: "Strategy paper", algorithm 4).

    Contexts with the same list of blocks share one leaf. ``linkage``: "average", "complete" or "single".

    Raises:
        TooManyContextsError: more than 20,000 contexts.
    """
    check_size(len(contexts))
    leaf_of = number_by_first(map(tuple, contexts))
    leaves = first_of_each(contexts, leaf_of)
    merges: list[tuple[int, int]] = []
    if len(leaves) > 1:
        steps = scipy_linkage(pairwise_distances(leaves, alpha), method=linkage)
        merges = [(int(left), int(right)) for left, right, _, _ in steps]
    return build_tree(leaves, leaf_of, merges)
