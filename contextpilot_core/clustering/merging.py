"""Greedy merging by shared tokens, without an N x N matrix (docs: "Strategy greedy").

Clusters have labels: the smallest input position among their members. Again and again the two clusters whose contents
share the most tokens are merged, ties by the sorted pair of labels, and keep what they share; nothing shared is never
merged. Contents only shrink, so a merge never comes closer to a third cluster than its parts were: the similarity is
reducible, and merging any two clusters that are each other's nearest gives the greedy tree, in whatever order.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from contextpilot_core.clustering.arrays import IntArray, ranges
from contextpilot_core.clustering.hierarchy import build_tree, distinct, forest_of
from contextpilot_core.clustering.merging_rounds import merge_rounds, similar_pairs
from contextpilot_core.clustering.values import Arranged

_EXCLUDED = -(1 << 62)  # keeps a cell below every sum of weights
_WIDE = 64  # blocks of a content up to which a table of all contents is small enough
_STEP = 0.8  # of a threshold to the next
_SPARSE = 50  # pairs per cluster that may compete without a threshold
_BEARABLE = 1_300  # pairs per cluster that are compared sooner than the chain has walked over it


def greedy_merges(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> list[tuple[int, int]]:
    """Return the merges of contexts with distinct sets of blocks, as (label that stays, label that joins it).

    ``weights``: tokens by block id; ids are 0..len(weights)-1. What shares most is merged in bulk, at falling
    thresholds; where too many pairs compete for that, or contexts are wide, the nearest-neighbour chain does the rest.
    """
    everywhere = frozenset.intersection(*map(frozenset, contexts)) if len(contexts) > 1 else frozenset[int]()
    if not any([weights[block] for block in everywhere]):
        return _greedy_merges(contexts, weights)
    # What all share adds the same to every pair. So it is left out until nothing else is shared; then every pair is
    # equal, and the smallest label takes in all that are left.
    merges = _greedy_merges([[block for block in each if block not in everywhere] for each in contexts], weights)
    joined = {joining for _, joining in merges}
    first, *left = [label for label in range(len(contexts)) if label not in joined]
    return merges + [(first, label) for label in left]


def _greedy_merges(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> list[tuple[int, int]]:
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


class NeighbourChain:
    """The nearest-neighbour chain over posting lists (block -> clusters whose content holds it).

    A cluster lives in the slot of its label. An entry of a posting list that no longer holds is overwritten with the
    number of a slot that does not exist; when half the entries are gone, the lists are rebuilt.
    """

    def __init__(self, contexts: Sequence[Sequence[int]], weights: Sequence[int] | IntArray) -> None:
        self._weights = np.asarray(weights, dtype=np.int64)
        self._contents: list[dict[int, int]] = [dict.fromkeys(context, 0) for context in contexts]  # block -> its entry
        self._alive = [bool(context) for context in contexts]
        self._nowhere = len(contexts)
        self._sums = np.zeros(len(contexts) + 1, dtype=np.int64)
        self._sums[self._nowhere] = _EXCLUDED
        self._index()

    def _index(self) -> None:
        """Build the posting lists of the clusters that are left."""
        live = [slot for slot, alive in enumerate(self._alive) if alive]
        lengths = [len(self._contents[slot]) for slot in live]
        blocks = np.fromiter((block for slot in live for block in self._contents[slot]), np.int64, count=sum(lengths))
        order = np.argsort(blocks, kind="stable")
        self._slots = np.repeat(np.asarray(live, dtype=np.int64), lengths)[order]
        self._tokens = self._weights[blocks[order]]
        ends = np.cumsum(np.bincount(blocks, minlength=len(self._weights))).tolist()
        self._lists = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        place = iter(places.tolist())
        for slot in live:
            self._contents[slot] = dict(zip(self._contents[slot], place, strict=False))
        self._gone = 0

    def run(self) -> list[tuple[int, int]]:
        """Return the merges."""
        merges: list[tuple[int, int]] = []
        chain: list[int] = []
        start = 0
        while True:
            if not chain:
                while start < len(self._alive) and not self._alive[start]:
                    start += 1
                if start == len(self._alive):
                    return merges
                chain.append(start)
            nearest = self._nearest(chain[-1])
            if nearest is None:
                self._drop(chain.pop())
            elif len(chain) > 1 and nearest == chain[-2]:
                kept, joining = sorted((chain.pop(), chain.pop()))
                self._merge(kept, joining)
                merges.append((kept, joining))
            else:
                chain.append(nearest)

    def _nearest(self, slot: int) -> int | None:
        """Return the cluster that shares most tokens with ``slot``, ties: the smallest label; None shares nothing."""
        lists = [self._lists[block] for block in self._contents[slot]]
        met = np.concatenate([self._slots[entries] for entries in lists])
        sums = self._sums
        sums[slot] = _EXCLUDED
        np.add.at(sums, met, np.concatenate([self._tokens[entries] for entries in lists]))
        shared = sums[met]
        sums[met] = 0
        sums[self._nowhere] = _EXCLUDED
        most = shared.max()
        return int(met[shared == most].min()) if most > 0 else None

    def _merge(self, kept: int, joining: int) -> None:
        """Let ``kept`` hold what both hold."""
        before, other = self._contents[kept], self._contents[joining]
        self._contents[kept] = {block: entry for block, entry in before.items() if block in other}
        self._contents[joining] = {}
        self._alive[joining] = False
        self._forget([entry for block, entry in before.items() if block not in other] + list(other.values()))

    def _drop(self, slot: int) -> None:
        """Take out a cluster that shares nothing with any other."""
        entries = list(self._contents[slot].values())
        self._contents[slot] = {}
        self._alive[slot] = False
        self._forget(entries)

    def _forget(self, entries: list[int]) -> None:
        self._slots[entries] = self._nowhere
        self._gone += len(entries)
        if 2 * self._gone > len(self._slots):
            self._index()


def greedy_forest(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> Arranged:
    """Merge, again and again, the two clusters whose contents share the most tokens (docs: "Strategy greedy").

    Contexts with the same set of blocks share one leaf, and the order of the first of them.
    ``weights``: tokens by block id; ids are 0..len(weights)-1 and distinct inside a context.
    """
    leaves, leaf_of = distinct(contexts, frozenset)
    return forest_of(build_tree(leaves, leaf_of, _node_pairs(greedy_merges(leaves, weights), len(leaves))))


def _node_pairs(label_pairs: Iterable[tuple[int, int]], leaves: int) -> Iterator[tuple[int, int]]:
    """Turn merges of labels (the second joins the first) into merges of nodes: the k-th makes node leaves + k."""
    node = list(range(leaves))
    for made, (kept, gone) in enumerate(label_pairs, start=leaves):
        yield node[kept], node[gone]
        node[kept] = made
