"""Greedy merging of a few waiting requests that knows what is cached (docs: "Windows").

Requests that share blocks can share a prefix, but the first of them may have to give up a cached path of its own for
that. Two clusters are merged where the tokens they share, and what is cached of these, outweigh what is cached of each:

    gain(A, B) = shared(A, B) + cached(A and B) - cached(A) - cached(B)

for contents A and B, where cached(X) is the longest cached path inside X. The largest gain goes first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from contextpilot_core.cache import Path
from contextpilot_core.clustering.orders import prefix_first

Cached = Callable[[Path], Path]
"""Blocks -> the cached path of most tokens that stays inside them."""

_Entry = tuple[int, bool, int, int]
"""(tokens lost by a merge, or a bound of that; whether it is exact; the two clusters): the least is the next."""


@dataclass(frozen=True, slots=True)
class Families:
    """Contexts in an order together.

    orders, shared: by context, all of its blocks, and how many leading ones it shares or finds cached.
    members: positions of the contexts of each family, depth-first; families share no blocks worth sharing.
    """

    orders: tuple[Path, ...]
    shared: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]


def cached_families(contexts: Sequence[Path], weights: Mapping[int, int], cached: Cached) -> Families:
    """Merge ``contexts`` (distinct blocks, best first) while that gains tokens; ``weights``: tokens by block.

    For windows: the time grows with the number of pairs that share blocks, it is some ms for 128 contexts.
    """
    merger = _Merger(contexts, weights, cached)
    orders: list[Path] = [()] * len(contexts)
    shared = [0] * len(contexts)
    members = []
    for root in merger.run():
        family = []
        for position, order, common in merger.orders(root):
            orders[position], shared[position] = order, common
            family.append(position)
        members.append(tuple(family))
    return Families(tuple(orders), tuple(shared), tuple(members))


class _Merger:
    """Clusters by number: the contexts first, then the merged ones. A content keeps the order of its first context."""

    def __init__(self, contexts: Sequence[Path], weights: Mapping[int, int], cached: Cached) -> None:
        self._weights = weights
        self._cached = cached
        self._contents: list[dict[int, None]] = []
        self._found: list[Path] = []  # the longest cached path inside the content
        self._held: list[int] = []  # its tokens
        self._first: list[int] = []  # the first context
        self._parts: list[tuple[int, int] | None] = []
        for number, context in enumerate(contexts):
            self._add(dict.fromkeys(context), number, None)
        # live cluster -> live cluster -> tokens that both hold
        self._shared: dict[int, dict[int, int]] = {number: {} for number in range(len(contexts))}
        self._meet()

    def _add(self, content: dict[int, None], first: int, parts: tuple[int, int] | None) -> int:
        self._contents.append(content)
        self._found.append(self._cached(tuple(content)))
        self._held.append(self._tokens(self._found[-1]))
        self._first.append(first)
        self._parts.append(parts)
        return len(self._contents) - 1

    def _tokens(self, blocks: Iterable[int]) -> int:
        weights = self._weights
        return sum([weights[block] for block in blocks])

    def _meet(self) -> None:
        """Find what contexts share by the holders of each block."""
        holders: dict[int, list[int]] = {}
        for number, content in enumerate(self._contents):
            for block in content:
                others = holders.setdefault(block, [])
                for other in others:
                    tokens = self._shared[other].get(number, 0) + self._weights[block]
                    self._shared[other][number] = self._shared[number][other] = tokens
                others.append(number)

    def run(self) -> list[int]:
        """Merge, the largest gain first, and return the clusters that are left, those of the earliest contexts first.

        A gain is computed only when its bound is the largest left.
        """
        queue: list[_Entry] = []
        for a, row in self._shared.items():
            _push(queue, [self._bound(a, b) for b in row if a < b])
        while queue:
            _, exact, a, b = heappop(queue)
            if a not in self._shared or b not in self._shared:
                continue
            if exact:
                merged = self._merge(a, b)
                _push(queue, [self._bound(other, merged) for other in self._shared[merged]])
            else:
                _push(queue, [self._loss(a, b)])
        return sorted(self._shared, key=self._first.__getitem__)

    def _bound(self, a: int, b: int) -> _Entry:
        """Return a bound of the loss: of what both hold, no more can be cached than of either."""
        return max(self._held[a], self._held[b]) - self._shared[a][b], False, a, b

    def _loss(self, a: int, b: int) -> _Entry:
        held = 0
        if self._held[a] and self._held[b]:
            held = self._tokens(self._cached(tuple(self._common(a, b))))
        return self._held[a] + self._held[b] - held - self._shared[a][b], True, a, b

    def _common(self, a: int, b: int) -> dict[int, None]:
        other = self._contents[b]
        return {block: None for block in self._contents[a] if block in other}

    def _merge(self, a: int, b: int) -> int:
        a, b = sorted((a, b), key=self._first.__getitem__)
        content = self._common(a, b)
        merged = self._add(content, self._first[a], (a, b))
        rows = self._shared.pop(a), self._shared.pop(b)
        self._shared[merged] = {}
        for number in rows[0].keys() & rows[1].keys():
            tokens = self._tokens(content.keys() & self._contents[number].keys())
            if tokens:
                self._shared[number][merged] = self._shared[merged][number] = tokens
        for gone, row in zip((a, b), rows, strict=True):
            for number in row.keys() & self._shared.keys():
                del self._shared[number][gone]
        return merged

    def orders(self, root: int) -> Iterator[tuple[int, Path, int]]:
        """Yield (context, order, leading blocks that are shared or cached) depth-first.

        A family begins with what is cached of its common content, a part with the order of the whole. Nothing below
        can go on in the cache: what is cached as a whole has nothing to gain from a merge.
        """
        stack: list[tuple[int, Path]] = [(root, self._found[root])]
        while stack:
            cluster, before = stack.pop()
            order = prefix_first(tuple(self._contents[cluster]), before)
            parts = self._parts[cluster]
            if parts is None:
                yield cluster, order, len(before)
            else:
                stack.extend((part, order) for part in reversed(parts))


def _push(queue: list[_Entry], entries: Iterable[_Entry]) -> None:
    """Queue the merges that may gain something."""
    for entry in entries:
        if entry[0] < 0:
            heappush(queue, entry)
