"""Distance between two contexts (eq. 1; docs: "Distance"): what they do not share, and how far apart it stands.

    d(i, j) = 1 - |S| / max(|C_i|, |C_j|) + alpha * sum_{k in S} |p_i(k) - p_j(k)| / |S|      (S empty: d = 1)

S holds the shared blocks, p the 0-based ranks. Contexts are lists of distinct block ids, best first. Their clusters,
by this distance, make the tree of the paper.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import linkage as scipy_linkage

from contextpilot_core.clustering.arrays import chunk_end, ranges
from contextpilot_core.clustering.merge_tree import MergeTree, build_tree, first_of_each, number_by_first
from contextpilot_core.errors import TooManyContextsError

MAX_CONTEXTS = 20_000
"""Contexts that a method over all pairs accepts: their distances already take 1.6 GB."""

_CHUNK = 1 << 21  # shared entries and buffer cells that are worked on at a time


def pairwise_distances(contexts: Sequence[Sequence[int]], alpha: float = 0.001) -> npt.NDArray[np.float64]:
    """Return the distances of all pairs as a condensed vector [n * (n - 1) / 2] in the order of scipy's ``pdist``.

    A sparse product over the blocks: every context meets, per block, the later contexts that hold it, so pairs that
    share nothing cost nothing.

    Raises:
        TooManyContextsError: more than 20,000 contexts.
    """
    size = len(contexts)
    check_size(size)
    lengths = np.fromiter(map(len, contexts), dtype=np.int64, count=size)
    firsts = np.concatenate([[0], np.cumsum(lengths)])  # the entries: all blocks of all contexts, one after the other
    blocks = np.fromiter((block for context in contexts for block in context), dtype=np.int64, count=firsts[-1])
    rows = np.repeat(np.arange(size), lengths)
    ranks = np.arange(len(blocks)) - firsts[rows]

    postings = np.argsort(blocks, kind="stable")  # entries by block, then by context
    places = np.empty_like(postings)
    places[postings] = np.arange(len(postings))
    later = np.searchsorted(blocks[postings], blocks, side="right") - places - 1  # entries behind in the same posting

    result = np.ones(size * (size - 1) // 2)
    cost = np.concatenate([[0], np.cumsum(later)])[firsts] + size * np.arange(size + 1)
    start = 0
    while start < size:
        end = chunk_end(cost, start, _CHUNK)
        mine = np.arange(firsts[start], firsts[end])
        left = np.repeat(mine, later[mine])
        right = postings[ranges(places[mine] + 1, later[mine])]
        cells = (rows[left] - start) * size + rows[right]
        shared = np.bincount(cells, minlength=(end - start) * size)
        gaps = np.bincount(cells, weights=abs(ranks[left] - ranks[right]), minlength=len(shared))
        met = np.flatnonzero(shared)
        row, column = met // size + start, met % size
        longest = np.maximum(lengths[row], lengths[column])
        place = row * size - row * (row + 1) // 2 + column - row - 1
        result[place] = 1 - shared[met] / longest + alpha * gaps[met] / shared[met]
        start = end
    return result


def check_size(size: int) -> None:
    """Raise `TooManyContextsError` when ``size`` contexts are more than all pairs can be held for."""
    if size > MAX_CONTEXTS:
        raise TooManyContextsError(
            f"{size} contexts are more than the {MAX_CONTEXTS} that all-pairs distances can hold; "
            'use strategy="greedy", which needs no distances'
        )


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
