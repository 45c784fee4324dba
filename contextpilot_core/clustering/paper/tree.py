"""The tree of contexts of the strategy "paper", kept up to date request by request (docs: algorithms 1, 2 and 4).

Root = empty context. The blocks of all nodes from the root down to a leaf are the context of the leaf's requests, in
the order that they were given; inner nodes are prefixes that everything below them shares.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from contextpilot_core.cache import Path
from contextpilot_core.checks import shown
from contextpilot_core.clustering.hierarchy import forest_of
from contextpilot_core.clustering.paper.clusters import paper_tree
from contextpilot_core.clustering.values import Arranged
from contextpilot_core.errors import DuplicateRequestError, IntegrityError, RequestError


class ContextNode:
    """One node. ``own``: its blocks without its parent's, in order. ``number``: its place among the parent's children.

    ``holders`` (block -> numbers of the children whose own blocks have it, in order) finds those that overlap, so a
    node with thousands of children is never scanned; ``bare``: numbers of the children without blocks of their own.
    ``requests``: the live requests of a leaf.
    """

    __slots__ = ("bare", "children", "holders", "next_number", "number", "own", "parent", "requests")

    def __init__(self, own: Path = ()) -> None:
        self.own = own
        self.parent: ContextNode | None = None
        self.number = 0
        self.next_number = 0
        self.children: dict[int, ContextNode] = {}
        self.holders: dict[int, dict[int, None]] = {}
        self.bare: dict[int, None] = {}
        self.requests: dict[str, None] = {}

    def append(self, child: "ContextNode") -> None:
        """Add a child under the next number; numbers are never used again."""
        self.put(self.next_number, child)
        self.next_number += 1

    def put(self, number: int, child: "ContextNode") -> None:
        """Add a child under a free number."""
        child.parent, child.number = self, number
        self.children[number] = child
        if not child.own:
            self.bare[number] = None
        for block in child.own:
            self.holders.setdefault(block, {})[number] = None

    def remove(self, child: "ContextNode") -> None:
        """Take a child out; what stands below it is untouched."""
        del self.children[child.number]
        self.bare.pop(child.number, None)
        for block in child.own:
            numbers = self.holders[block]
            del numbers[child.number]
            if not numbers:
                del self.holders[block]

    def nearest(self, ranks: Mapping[int, int], alpha: float) -> "ContextNode | None":
        """Return the child whose own blocks are nearest to a request by eq. 1, or None when all of them miss it.

        ``ranks``: the request's blocks with their ranks. Ties: inner nodes first, then the lowest number.
        """
        size = len(ranks)
        fewer, more = (self.holders, ranks) if len(self.holders) < size else (ranks, self.holders)
        shared = Counter(chain.from_iterable([self.holders[block] for block in fewer if block in more]))
        best: tuple[float, bool, int] | None = None
        for count in range(max(shared.values(), default=0), 0, -1):
            if best is not None and best[0] < 1 - count / size:
                break  # no child that shares so little can be as near
            for number in [number for number, met in shared.items() if met == count]:
                child = self.children[number]
                gaps = sum([abs(ranks[block] - rank) for rank, block in enumerate(child.own) if block in ranks])
                far = 1 - count / max(size, len(child.own)) + alpha * gaps / count
                key = (far, not child.children, number)
                if best is None or key < best:
                    best = key
        return None if best is None else self.children[best[2]]


class ContextTree:
    """Search, order, insert and evict contexts; every one of these costs O(height), whatever the number of contexts.

    Contexts are distinct block ids, best first. Not thread-safe.
    """

    def __init__(self, alpha: float = 0.001) -> None:
        self._alpha = alpha
        self._root = ContextNode()
        self._leaf_of: dict[str, ContextNode] = {}

    def __len__(self) -> int:
        """Return the number of live requests."""
        return len(self._leaf_of)

    def build(self, contexts: Mapping[str, Sequence[int]], *, linkage: str = "average") -> Arranged:
        """Cluster many contexts at once (algorithm 4) and hold them.

        Raises:
            RequestError: the tree is not empty.
            TooManyContextsError: more than 20,000 contexts. In both cases nothing was changed.
        """
        if self._leaf_of:
            raise RequestError(f"build needs an empty tree and {len(self)} requests are live; insert the new ones")
        tree = paper_tree(list(contexts.values()), alpha=self._alpha, linkage=linkage)
        nodes = list(map(ContextNode, tree.own))
        for node, parent in zip(nodes[1:], tree.parents[1:], strict=True):
            nodes[parent].append(node)
        self._root = nodes[0]
        for request_id, leaf in zip(contexts, tree.leaves, strict=True):
            self._add_request(request_id, nodes[leaf])
        return forest_of(tree)

    def search(self, ids: Sequence[int]) -> ContextNode:
        """Return the node to share a prefix with (algorithm 1): down to the nearest child while one overlaps.

        The search ends at a leaf, where no child overlaps, or at an inner node that the request holds only in part.
        """
        ranks = {block: rank for rank, block in enumerate(ids)}
        node = self._root
        while (child := node.nearest(ranks, self._alpha)) is not None:
            node = child
            if not all(block in ranks for block in node.own):
                break
        return node

    def matched(self, ids: Sequence[int]) -> Path:
        """Return the blocks of ``ids`` that the best matching node holds, in the node's order (algorithm 2)."""
        wanted = set(ids)
        return tuple([block for block in _content(self.search(ids)) if block in wanted])

    def insert(self, request_id: str, ids: Sequence[int]) -> Path:
        """Hold a context at its best match, without rebuilding anything, and return its path.

        An inner node gets a child. A leaf, or an inner node that is held only in part, gets a new inner node above it
        with what both share. Contexts of the same blocks share one leaf.

        Raises:
            DuplicateRequestError: the request is live already; nothing was changed.
        """
        if request_id in self._leaf_of:
            raise DuplicateRequestError(f"request {shown(request_id)} is live already; evict it or use another id")
        above = self.search(ids)
        wanted = set(ids)
        if above.requests or not wanted.issuperset(above.own):
            shared = tuple([block for block in above.own if block in wanted])
            rest = wanted.difference(_content(above))
            if rest or len(shared) < len(above.own):
                above = self._split(above, shared)
        if not above.requests:
            own = wanted.difference(_content(above))
            above = self._leaf_below(above, tuple([block for block in ids if block in own]))
        self._add_request(request_id, above)
        return self.path(request_id)

    def evict(self, request_id: str) -> bool:
        """Forget a request and the nodes that only it needed; False when it is not live."""
        node = self._leaf_of.pop(request_id, None)
        if node is None:
            return False
        del node.requests[request_id]
        while node.parent is not None and not node.children and not node.requests:
            node.parent.remove(node)
            node = node.parent
        return True

    def path(self, request_id: str) -> Path:
        """Return the child numbers from the root to the request's leaf.

        Raises:
            RequestError: the request is not live.
        """
        node = self._leaf_of.get(request_id)
        if node is None:
            raise RequestError(f"request {shown(request_id)} is not live, so it has no path; insert it first")
        return tuple(_name(node))

    def _add_request(self, request_id: str, leaf: ContextNode) -> None:
        leaf.requests[request_id] = None
        self._leaf_of[request_id] = leaf

    def _leaf_below(self, node: ContextNode, own: Path) -> ContextNode:
        """Return a leaf for a context that adds ``own`` to the node's."""
        if not own and node.bare:
            return node.children[next(iter(node.bare))]
        leaf = ContextNode(own)
        node.append(leaf)
        return leaf

    def _split(self, node: ContextNode, shared: Path) -> ContextNode:
        """Put a new inner node with the ``shared`` part of a node's own blocks in its place, the node below it."""
        above = node.parent
        if above is None:
            raise IntegrityError("the root cannot be split: its context is empty")
        inner = ContextNode(shared)
        above.remove(node)
        above.put(node.number, inner)
        node.own = tuple([block for block in node.own if block not in shared])
        inner.append(node)
        return inner

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless links, indexes, blocks and requests agree with each other."""
        live: dict[str, ContextNode] = {}
        waiting: list[tuple[ContextNode, frozenset[int]]] = [(self._root, frozenset())]
        while waiting:
            node, above = waiting.pop()
            content = above.union(node.own)
            if len(content) != len(above) + len(node.own):
                raise IntegrityError(f"node {_name(node)} holds a block twice, or one of its parent's")
            _check_node(node)
            live.update(dict.fromkeys(node.requests, node))
            waiting += [(child, content) for child in node.children.values()]
        if live != self._leaf_of:
            raise IntegrityError("the requests of the leaves are not the requests that are live")


def _upwards(node: ContextNode) -> Iterator[ContextNode]:
    """Yield a node and those above it, without the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def _content(node: ContextNode) -> list[int]:
    """Return the blocks of a node in order, the root's part first."""
    return [block for above in reversed(list(_upwards(node))) for block in above.own]


def _name(node: ContextNode) -> list[int]:
    return [above.number for above in reversed(list(_upwards(node)))]


def _check_node(node: ContextNode) -> None:
    holders: dict[int, dict[int, None]] = {}
    for number, child in node.children.items():
        if child.parent is not node or child.number != number or number >= node.next_number:
            raise IntegrityError(f"child {number} of node {_name(node)} does not know its place")
        if child.children and not child.own:
            raise IntegrityError(f"inner node {_name(child)} adds no block, so no search can find it")
        for block in child.own:
            holders.setdefault(block, {})[number] = None
    if holders != node.holders or set(node.bare) != {n for n, child in node.children.items() if not child.own}:
        raise IntegrityError(f"the index of node {_name(node)} does not match its children")
    if node.parent is not None and bool(node.requests) == bool(node.children):
        raise IntegrityError(f"node {_name(node)} must have either requests or children")
