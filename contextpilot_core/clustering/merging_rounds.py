"""Greedy merging of many clusters at once: the part of the greedy tree at or above a threshold of shared tokens.

A similarity self-join finds all pairs that share at least the threshold; then pairs that are each other's nearest are
merged, round after round. Contents only shrink, so that what two clusters share bounds what their successors share:
the pairs found at first are enough for all rounds. Clusters are rows, in the order of their labels.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contextpilot_core.clustering.arrays import IntArray, chunk_end, ranges

Rows: TypeAlias = IntArray
"""[clusters, width]: the numbers of a content's blocks, ascending = rarest first; filled up with the last number."""

_COLUMN_PAIRS = 1 << 22  # cells that are looked at together
_PAIRS = 1 << 13  # pairs that are compared together: few, so that what they touch stays in the processor's cache
_TABLE = 1 << 22  # cells of the table that they are compared with
_MAX_LINKS = 1 << 23  # pairs that are held: 200 MB


@dataclass(frozen=True, slots=True)
class Links:
    """Pairs of rows, ``left < right``, each once, and the tokens that they share."""

    left: IntArray
    right: IntArray
    shared: IntArray

    def where(self, keep: npt.NDArray[np.bool_]) -> "Links":
        """Return some of the pairs."""
        return Links(self.left[keep], self.right[keep], self.shared[keep])


def similar_pairs(rows: Rows, weights: IntArray, threshold: int, max_pairs: int) -> Links | None:
    """Return all pairs of rows that share at least ``threshold`` tokens; None when more than ``max_pairs`` compete.

    ``weights``: tokens by block number, the weightless one last.
    """
    signs, owners = _signatures(rows, weights, threshold)
    by_sign = np.argsort(signs, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(signs[by_sign])) + 1, len(signs))
    behind = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(1, len(signs) + 1)  # rows left in the same run
    if behind.sum() > max_pairs:
        return None
    starts = np.empty_like(by_sign)
    starts[by_sign] = np.arange(1, len(signs) + 1)
    counts = np.empty_like(by_sign)
    counts[by_sign] = behind
    paired = np.flatnonzero(counts)
    return _compare(rows, weights, threshold, (owners[paired], starts[paired], counts[paired], owners[by_sign]))


def _signatures(rows: Rows, weights: IntArray, threshold: int) -> tuple[IntArray, IntArray]:
    """Return signatures and the rows that bear them, row by row: similar rows have one in common.

    Two rows that share enough share a block that weighs enough; or the first two blocks that they share, a before b,
    are such that a and all that each row holds from b on weigh enough. Rare blocks first: few rows meet by chance.
    """
    tokens = weights[rows]
    heavy = np.flatnonzero(tokens.sum(axis=1) >= threshold)
    first, second = np.triu_indices(rows.shape[1])
    alone = first == second
    signs, owners = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    step = max(1, _COLUMN_PAIRS // len(first))
    for start in range(0, len(heavy), step):
        part = heavy[start : start + step]
        onwards = np.cumsum(tokens[part, ::-1], axis=1)[:, ::-1]
        a, b = tokens[part][:, first], tokens[part][:, second]
        enough = (a + onwards[:, second] >= threshold) & (a < threshold) & (b < threshold) & (a > 0) & (b > 0) & ~alone
        enough |= (a >= threshold) & alone
        row, pair = np.nonzero(enough)
        owners.append(part[row])
        signs.append(rows[part[row], first[pair]] * len(weights) + rows[part[row], second[pair]])
    return np.concatenate(signs), np.concatenate(owners)


def _compare(
    rows: Rows, weights: IntArray, threshold: int, competing: tuple[IntArray, IntArray, IntArray, IntArray]
) -> Links | None:
    """Return the pairs that really share enough. ``competing``: rows, and which part of a list of others each meets."""
    owners, starts, counts, others = competing
    width = len(weights)
    cost = np.concatenate([[0], np.cumsum(counts)])
    cost[1:] += owners * -(-width * _PAIRS // _TABLE)  # bounds the rows of a chunk, too
    table = np.zeros((_TABLE // width + 2) * width, dtype=np.int64)
    found: list[Links] = []
    total = start = 0
    while start < len(owners):
        end = chunk_end(cost, start, _PAIRS)
        base, last = int(owners[start]), int(owners[end - 1]) + 1
        mine = rows[base:last] + np.arange(last - base)[:, None] * width
        table[mine] = weights[rows[base:last]]
        left = np.repeat(owners[start:end], counts[start:end])
        right = others[ranges(starts[start:end], counts[start:end])]
        cells = rows.take(right, axis=0)
        cells += ((left - base) * width)[:, None]
        shared = np.einsum("ij->i", table.take(cells))
        table[mine] = 0
        found.append(Links(left, right, shared).where(shared >= threshold))
        total += len(found[-1].left)
        if total > _MAX_LINKS:
            return None
        start = end
    left, right, shared = (
        np.concatenate([np.empty(0, dtype=np.int64), *[getattr(links, name) for links in found]])
        for name in ("left", "right", "shared")
    )
    _, once = np.unique(left * len(rows) + right, return_index=True)
    return Links(left[once], right[once], shared[once])


def merge_rounds(rows: Rows, weights: IntArray, threshold: int, links: Links) -> list[tuple[int, int]]:
    """Merge all that shares at least ``threshold``; return (row that stays, row that joins it).

    ``rows`` is changed: a row that stays gets the content of the merge.
    """
    merges: list[tuple[int, int]] = []
    while len(links.left):
        into = _join(rows, weights, links)
        joining = np.flatnonzero(into != np.arange(len(rows)))
        merges += zip(into[joining].tolist(), joining.tolist(), strict=True)
        links = _follow(rows, weights, threshold, links, into)
    return merges


def _join(rows: Rows, weights: IntArray, links: Links) -> IntArray:
    """Merge what may be merged now; return by row the row that it is part of from now on: the smallest of its cluster.

    Two rows that are nearest to each other are merged. And a row whose nearest row is a subset of it (without blocks of
    no weight) may join at once: no merge that comes first can change that subset. So thousands of rows that share one
    common block need one round, not thousands.
    """
    size = len(rows)
    most = np.zeros(size, dtype=np.int64)
    nearest = np.full(size, size)
    np.maximum.at(most, links.left, links.shared)
    np.maximum.at(most, links.right, links.shared)
    for one, other in ((links.left, links.right), (links.right, links.left)):
        best = links.shared == most[one]
        np.minimum.at(nearest, one[best], other[best])
    row = np.flatnonzero(nearest < size)
    near = nearest[row]
    mutual = nearest[near] == row
    held = most[row] == weights[rows[near]].sum(axis=1)
    held[held] = (weights[rows[near[held]]] + (rows[near[held]] == len(weights) - 1) > 0).all(axis=1)
    into = np.arange(size)
    joins = np.where(mutual, near < row, held)
    into[row[joins]] = near[joins]
    first, second = near[mutual & (near < row)], row[mutual & (near < row)]
    kept = rows[first]
    kept[~_held_by(kept, rows[second])] = len(weights) - 1
    rows[first] = np.sort(kept, axis=1)
    while not np.array_equal(further := into[into], into):  # a row may join one that joins another
        into = further
    smallest = np.full(size, size)
    np.minimum.at(smallest, into, np.arange(size))
    top = np.unique(into)
    rows[smallest[top]] = rows[top]
    return smallest[into]


def _follow(rows: Rows, weights: IntArray, threshold: int, links: Links, into: IntArray) -> Links:
    """Return the links between what the linked rows are part of now.

    Two merged rows can share enough only if all their parts do, so a pair that lacks a link of its parts is left out.
    """
    parts = np.bincount(into, minlength=len(rows))
    left, right = into[links.left], into[links.right]
    changed = parts[left] * parts[right] > 1
    left, right = left[changed], right[changed]
    apart = left != right
    code = np.minimum(left, right)[apart] * len(rows) + np.maximum(left, right)[apart]
    code, count = np.unique(code, return_counts=True)
    left, right = np.divmod(code, len(rows))
    complete = count == parts[left] * parts[right]
    left, right = left[complete], right[complete]
    shared = np.where(_held_by(rows[left], rows[right]), weights[rows[left]], 0).sum(axis=1)
    moved = Links(left, right, shared).where(shared >= threshold)
    same = links.where(~changed)
    return Links(*(np.concatenate([getattr(same, name), getattr(moved, name)]) for name in ("left", "right", "shared")))


def _held_by(rows: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    """Return, for each cell of ``rows``, whether the same row of ``others`` holds its block."""
    held = np.zeros(rows.shape, dtype=np.bool_)
    for column in range(others.shape[1]):
        held |= rows == others[:, column : column + 1]
    return held
