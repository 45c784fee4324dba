"""What the engine's prefix cache is believed to hold: an estimate that needs no word from the engine (docs: "Online").

The estimate is a prefix tree with a capacity in tokens. All nodes of a path are touched together; when the tokens
exceed the capacity, the least recently used leaves lose their last blocks first, never those of the path just used.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from contextpilot_core.blocks import BlockTable
from contextpilot_core.errors import IntegrityError
from contextpilot_core.tree import Node, PrefixTree


class CacheView:
    """An LRU estimate of one namespace's prefix cache. ``capacity`` in tokens, None is unbounded."""

    def __init__(self, blocks: BlockTable, *, capacity: int | None, max_requests: int) -> None:
        self._blocks = blocks
        self._capacity = capacity
        self._max_requests = max_requests
        self._tree = PrefixTree(blocks.tokens)
        # Oldest first. A path is moved to the end from its last node upward, so a child always stands before its
        # parent and the first node is always a leaf.
        self._recency: OrderedDict[Node, None] = OrderedDict()

    @property
    def tree(self) -> PrefixTree:
        """The paths that are cached; for reading only."""
        return self._tree

    def __len__(self) -> int:
        """Return the number of live requests."""
        return len(self._tree.requests)

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        return self._tree.end_of(request_id) is not None

    @property
    def tokens(self) -> int:
        """Tokens that are believed to be cached."""
        return self._tree.tokens

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        return self._tree.walk(path)[2]

    def longest(
        self,
        head: Sequence[int],
        wanted: Sequence[int],
        *,
        max_visits: int,
        optional: frozenset[int] = frozenset(),
        allowance: int = 0,
    ) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and stays inside ``wanted``.

        Empty when the head itself is not cached. ``optional`` and ``allowance`` as in `PrefixTree.longest`.
        """
        node, used, matched = self._tree.walk(head)
        if matched < len(head):
            return ()
        return self._tree.longest(node, used, wanted, max_visits=max_visits, optional=optional, allowance=allowance)

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Put ``path`` into the view as the latest used: the requests whose last blocks had to go for it."""
        line, fresh = self._tree.insert(path, request_id)
        self._blocks.acquire(fresh)
        recency = self._recency
        for node in reversed(line):
            recency[node] = None
            recency.move_to_end(node)
        touched = self._shrink(protected=set(line)) if self._over() else []
        while len(self._tree.requests) > self._max_requests:
            oldest = next(iter(self._tree.requests))
            self.release(oldest)
            touched.append(oldest)
        return touched

    def release(self, request_id: str) -> int | None:
        """Forget a request and what only it held: the tokens that were freed, or None for an unknown id."""
        removed = self._tree.release(request_id)
        if removed is None:
            return None
        freed = 0
        for node in removed:
            del self._recency[node]
            freed += node.tokens
            self._blocks.release(node.blocks)
        return freed

    def _over(self) -> bool:
        return self._capacity is not None and self._tree.tokens > self._capacity

    def _shrink(self, protected: set[Node]) -> list[str]:
        touched: list[str] = []
        weights = self._blocks.tokens
        capacity = self._capacity or 0
        while self._tree.tokens > capacity:
            leaf = next(iter(self._recency))
            if leaf in protected:
                break
            excess, count = self._tree.tokens - capacity, 0
            while excess > 0 and count < len(leaf.blocks):
                count += 1
                excess -= weights[leaf.blocks[-count]]
            if count == len(leaf.blocks):
                del self._recency[leaf]
            cut, requests = self._tree.trim(leaf, count)
            self._blocks.release(cut)
            touched.extend(requests)
        return touched

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless tree and recency agree and the oldest come before what they stand on."""
        self._tree.check_integrity()
        place = {node: index for index, node in enumerate(self._recency)}
        for node in self._tree.nodes():
            if node not in place:
                raise IntegrityError("a node of the cache view has no place in the recency order")
            if node.parent is not None and node.parent in place and place[node.parent] < place[node]:
                raise IntegrityError("a node of the cache view is older than a path that runs through it")
        if len(place) != sum(1 for _ in self._tree.nodes()):
            raise IntegrityError("the recency order of the cache view holds nodes that left the tree")

    def references(self) -> Counter[int]:
        """Return how often the view refers to each block id."""
        return Counter(block for node in self._tree.nodes() for block in node.blocks)
