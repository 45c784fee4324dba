"""Greedy merging by shared tokens, without an N x N matrix (docs: "Strategy greedy").

Clusters have labels: the smallest input position among their members. Again and again the two clusters whose contents
share the most tokens are merged, ties by the sorted pair of labels, and keep what they share; nothing shared is never
merged. Contents only shrink, so a merge never comes closer to a third cluster than its parts were: the similarity is
reducible, and merging any two clusters that are each other's nearest gives the greedy tree, in whatever order.
"""

from collections.abc import Sequence

import numpy as np

from contextpilot_core.arrays import IntArray, ranges
from contextpilot_core.clustering_chain import NeighbourChain
from contextpilot_core.clustering_join import merge_rounds, similar_pairs

_WIDE = 64  # blocks of a content up to which a table of all contents is small enough
_STEP = 0.8  # of a threshold to the next
_SPARSE = 50  # pairs per cluster that may compete without a threshold
_BEARABLE = 1_300  # pairs per cluster that are compared sooner than the chain has walked over it


def greedy_merges(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> list[tuple[int, int]]:
    """Return the merges of contexts with distinct sets of blocks, as (label that stays, label that joins it).

    ``weights``: tokens by block id; ids are 0..len(weights)-1. What shares most is merged in bulk, at falling
    thresholds; where too many pairs compete for that, or contexts are wide, the nearest-neighbour chain does the rest.
    """
    if max(map(len, contexts), default=0) > _WIDE:
        return NeighbourChain(contexts, weights).run()
    rows, tokens = _table(contexts, np.asarray(weights, dtype=np.int64))
    labels = np.arange(len(rows))
    merges: list[tuple[int, int]] = []
    threshold = int(tokens[rows].sum(axis=1).max(initial=0))
    while True:
        holders = np.bincount(rows.ravel(), minlength=len(tokens))[:-1]
        meeting = int((holders * (holders - 1) // 2).sum())  # pairs, once per block that they share
        threshold = 1 if meeting <= _SPARSE * len(rows) else max(1, int(threshold * _STEP))
        links = similar_pairs(rows, tokens, threshold, max_pairs=meeting // 4 + _BEARABLE * len(rows))
        if links is None:
            contents = [row[row < len(tokens) - 1].tolist() for row in rows]
            return merges + _named(labels, NeighbourChain(contents, tokens).run())
        found = merge_rounds(rows, tokens, threshold, links)
        merges += _named(labels, found)
        if threshold == 1:
            return merges
        stays = np.ones(len(rows), dtype=np.bool_)
        stays[[joining for _, joining in found]] = False
        rows, labels = rows[stays], labels[stays]


def _named(labels: IntArray, merges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return merges of rows as merges of labels."""
    names = labels.tolist()
    return [(names[kept], names[joining]) for kept, joining in merges]


def _table(contexts: Sequence[Sequence[int]], weights: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows and tokens for the join: blocks that can be shared, numbered from the rarest to the commonest."""
    lengths = np.fromiter(map(len, contexts), dtype=np.int64, count=len(contexts))
    blocks = np.fromiter((block for context in contexts for block in context), dtype=np.int64, count=lengths.sum())
    owners = np.repeat(np.arange(len(contexts)), lengths)
    holders = np.bincount(blocks, minlength=len(weights))
    common = np.flatnonzero(holders > 1)
    common = common[np.argsort(holders[common], kind="stable")]
    number = np.full(len(weights), len(common))
    number[common] = np.arange(len(common))
    rows = np.full((len(contexts), max(1, int(lengths.max(initial=0)))), len(common))
    rows[owners, ranges(np.zeros_like(lengths), lengths)] = number[blocks]
    rows.sort(axis=1)
    return rows, np.append(weights[common], 0)
