"""Clusters of contexts by distance."""

from collections.abc import Sequence

from contextpilot_core.clustering.hierarchy import MergeTree, build_tree, distinct
from contextpilot_core.clustering.paper.distance import pairwise_distances
from contextpilot_core.errors import TooManyContextsError

MAX_CONTEXTS = 20_000
"""Contexts that a method over all pairs accepts: their distances already take 1.6 GB."""


def paper_tree(contexts: Sequence[Sequence[int]], *, alpha: float, linkage: str) -> MergeTree:
    """Merge by distance (eq. 1) with hierarchical clustering (docs: "Strategy paper", algorithm 4).

    Contexts with the same list of blocks share one leaf. ``linkage``: "average", "complete" or "single".

    Raises:
        TooManyContextsError: more than 20,000 contexts.
    """
    if len(contexts) > MAX_CONTEXTS:
        raise TooManyContextsError(
            f"{len(contexts)} contexts are more than the {MAX_CONTEXTS} that all-pairs distances can hold; "
            'use strategy="greedy", which needs no distances'
        )
    leaves, leaf_of = distinct(contexts, tuple)
    merges: list[tuple[int, int]] = []
    if len(leaves) > 1:
        # Loading it takes longer than all the rest of the package; nothing else needs it.
        from scipy.cluster.hierarchy import linkage as scipy_linkage

        steps = scipy_linkage(pairwise_distances(leaves, alpha), method=linkage)
        merges = [(int(left), int(right)) for left, right, _, _ in steps]
    return build_tree(leaves, leaf_of, merges)
