"""Small numpy helpers of the stages that work on ragged data."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return ``[starts[0], starts[0]+1, ..]`` for ``lengths[0]`` numbers, then the same for the next, concatenated."""
    before = np.cumsum(lengths) - lengths
    result: IntArray = np.arange(lengths.sum(), dtype=np.int64)
    result += np.repeat(starts - before, lengths)
    return result


def chunk_end(cumulative: IntArray, start: int, limit: int) -> int:
    """Return the end of the chunk that begins at ``start`` and costs at most ``limit`` (at least one item).

    ``cumulative`` [items + 1]: cost of all items before each.
    """
    end = int(np.searchsorted(cumulative, cumulative[start] + limit, side="right")) - 1
    return min(max(end, start + 1), len(cumulative) - 1)
