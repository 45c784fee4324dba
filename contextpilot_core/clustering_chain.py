"""Greedy merging by the nearest-neighbour chain over posting lists (docs: "Strategy greedy").

One query per step, no N x N matrix, and any width and density of contexts.
"""

from collections.abc import Sequence

import numpy as np

from contextpilot_core.arrays import IntArray

_EXCLUDED = -(1 << 62)  # keeps a cell below every sum of weights


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
