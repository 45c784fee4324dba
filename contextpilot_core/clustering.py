"""Clustering of contexts: which contexts share a prefix, and in which order each takes its blocks.

Two strategies make the same kind of result. ``greedy_forest`` (ours) merges what saves most tokens, ``paper_forest``
(algorithm 4) merges by distance.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import linkage as scipy_linkage

from contextpilot_core.clustering_greedy import greedy_merges
from contextpilot_core.clustering_tree import MergeTree, build_tree
from contextpilot_core.distance import check_size, pairwise_distances


@dataclass(frozen=True, slots=True)
class MergeForest:
    """Contexts in an order together. Every field but ``sequence`` has one entry per context, in input order.

    orders: all blocks of the context, shared ones first, as the tree has them from the root down.
    paths: child numbers from the root to the context's leaf.
    shared: how many leading blocks of the order are shared with another context: the content of the parent node, or
    all of them when several contexts share the leaf.
    sequence: input positions depth-first, the order in which neighbours share most.
    """

    orders: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[int, ...], ...]
    shared: tuple[int, ...]
    sequence: tuple[int, ...]


def greedy_forest(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> MergeForest:
    """Merge, again and again, the two clusters whose contents share the most tokens (docs: "Strategy greedy").

    Contexts with the same set of blocks share one leaf, and the order of the first of them.
    ``weights``: tokens by block id; ids are 0..len(weights)-1 and distinct inside a context.
    """
    leaf_of = _same(map(frozenset, contexts))
    leaves = _leaves(contexts, leaf_of)
    return forest_of(build_tree(leaves, leaf_of, _node_pairs(greedy_merges(leaves, weights), len(leaves))))


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


def forest_of(tree: MergeTree) -> MergeForest:
    """Return what a tree says about each of its contexts."""
    orders: list[tuple[int, ...]] = [()]
    paths: list[tuple[int, ...]] = [()]
    for parent, number, own in zip(tree.parents[1:], tree.numbers[1:], tree.own[1:], strict=True):
        orders.append(orders[parent] + own)
        paths.append((*paths[parent], number))
    members = np.bincount(np.asarray(tree.leaves, dtype=np.int64), minlength=1).tolist()
    shared = [len(orders[leaf]) - (len(tree.own[leaf]) if members[leaf] == 1 else 0) for leaf in tree.leaves]
    return MergeForest(
        orders=tuple([orders[leaf] for leaf in tree.leaves]),
        paths=tuple([paths[leaf] for leaf in tree.leaves]),
        shared=tuple(shared),
        sequence=tuple(sorted(range(len(tree.leaves)), key=tree.leaves.__getitem__)),  # nodes are numbered depth-first
    )


def _same(keys: Iterable[Hashable]) -> list[int]:
    """Number keys by first appearance; equal keys get equal numbers."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _leaves(contexts: Sequence[Sequence[int]], leaf_of: Sequence[int]) -> list[Sequence[int]]:
    """Return the first context of each leaf."""
    leaves: list[Sequence[int]] = []
    for context, leaf in zip(contexts, leaf_of, strict=True):
        if leaf == len(leaves):
            leaves.append(context)
    return leaves


def _node_pairs(label_pairs: Iterable[tuple[int, int]], leaves: int) -> Iterator[tuple[int, int, float]]:
    """Turn merges of labels (the second joins the first) into merges of nodes: the k-th makes node leaves + k."""
    node = list(range(leaves))
    for made, (kept, gone) in enumerate(label_pairs, start=leaves):
        yield node[kept], node[gone], 0.0
        node[kept] = made
