"""Distance between two contexts (eq. 1; docs: "Distance"): what they do not share, and how far apart it stands.

    d(i, j) = 1 - |S| / max(|C_i|, |C_j|) + alpha * sum_{k in S} |p_i(k) - p_j(k)| / |S|      (S empty: d = 1)

S holds the shared blocks, p the 0-based ranks. Contexts are lists of distinct block ids, best first.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from contextpilot_core.clustering.arrays import chunk_end, ranges

_CHUNK = 1 << 21  # shared entries and buffer cells that are worked on at a time


def pairwise_distances(contexts: Sequence[Sequence[int]], alpha: float = 0.001) -> npt.NDArray[np.float64]:
    """Return the distances of all pairs as a condensed vector [n * (n - 1) / 2] in the order of scipy's ``pdist``.

    A sparse product over the blocks: every context meets, per block, the later contexts that hold it, so pairs that
    share nothing cost nothing.
    """
    size = len(contexts)
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
