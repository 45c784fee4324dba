"""What the engine's prefix cache is believed to hold: an estimate that needs no word from the engine (docs: "Online").

The estimate is a prefix tree with a capacity in tokens. All nodes of a path are touched together; when the tokens
exceed the capacity, the least recently used leaves lose their last blocks first, never those of the path just used.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.tree import Node, PrefixTree, Wanted
from contextpilot_core.cache.view import View
from contextpilot_core.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class CacheState:
    """A view as values. Nodes are named by their places in ``nodes``, the root is -1.

    nodes: (parent, block ids) of each node, after its parent. recency: (node, the admission that used it last), oldest
    first. requests: (id, the node at which it ends), oldest first. admissions: how many there were.
    """

    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    recency: tuple[tuple[int, int], ...]
    requests: tuple[tuple[str, int], ...]
    admissions: int


class CacheView(View):
    """An LRU estimate of one namespace's prefix cache. ``capacity`` in tokens, None is unbounded."""

    def __init__(self, blocks: BlockTable, *, capacity: int | None, max_requests: int) -> None:
        self._blocks = blocks
        self._capacity = capacity
        self._max_requests = max_requests
        self._tree = PrefixTree(blocks.tokens)
        # Oldest first. A path is moved to the end from its last node upward, so a child always stands before its
        # parent and the first node is always a leaf.
        self._recency: OrderedDict[Node, int] = OrderedDict()  # node -> the admission that used it last
        self._admissions = 0

    @property
    def tree(self) -> PrefixTree:
        """The paths that are cached; for reading only."""
        return self._tree

    def __len__(self) -> int:
        """Return the number of live requests."""
        return len(self._tree.ends)

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        return request_id in self._tree.ends

    @property
    def tokens(self) -> int:
        """Tokens that are believed to be cached."""
        return self._tree.tokens

    @property
    def admissions(self) -> int:
        """How many paths were admitted."""
        return self._admissions

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        return self._tree.walk(path)[2]

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``."""
        node, used, matched = self._tree.walk(head)
        if matched < len(head):
            return ()
        return self._tree.longest(node, used, wanted)

    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used: a number that grows, 0 when nothing is cached."""
        node, _, matched = self._tree.walk(path)
        return self._recency[node] if matched else 0

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Put ``path`` into the view as the latest used: the requests whose last blocks had to go for it."""
        line, fresh = self._tree.insert(path, request_id)
        self._blocks.acquire(fresh)
        recency = self._recency
        self._admissions += 1
        for node in reversed(line):
            recency[node] = self._admissions
            recency.move_to_end(node)
        touched = self._shrink(line)
        while len(self._tree.ends) > self._max_requests:
            oldest = next(iter(self._tree.ends))
            self.release(oldest)
            touched.append(oldest)
        return touched

    def freed_by(self, request_id: str) -> int:
        """Return the tokens that `release` would free."""
        return sum(node.tokens for node in self._tree.held_by(request_id))

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

    def _shrink(self, line: list[Node]) -> list[str]:
        touched: list[str] = []
        weights, capacity = self._blocks.tokens, self._capacity
        protected = set(line)
        while capacity is not None and self._tree.tokens > capacity:
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

    def state(self) -> CacheState:
        """Return the view as values."""
        places: dict[Node | None, int] = {self._tree.root: -1}
        nodes: list[tuple[int, tuple[int, ...]]] = []
        for node in self._tree.nodes():
            places[node] = len(nodes)
            nodes.append((places[node.parent], tuple(node.blocks)))
        recency = tuple((places[node], admission) for node, admission in self._recency.items())
        ends = tuple([(request_id, places[node]) for request_id, node in self._tree.ends.items()])
        return CacheState(tuple(nodes), recency, ends, self._admissions)

    def restore(self, state: CacheState) -> None:
        """Become what ``state`` says; only for a new view, of blocks that are known."""
        nodes = {-1: self._tree.root}
        for place, (parent, blocks) in enumerate(state.nodes):
            nodes[place] = self._tree.add(nodes[parent], blocks)
            self._blocks.acquire(blocks)
        for node, admission in state.recency:
            self._recency[nodes[node]] = admission
        for request_id, end in state.requests:
            self._tree.end(request_id, nodes[end])
        self._admissions = state.admissions

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
