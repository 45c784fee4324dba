"""A prefix tree over block ids: the shape of what an engine's prefix cache holds (docs: "Online", paper section 4).

Edges are compressed: a node holds the run of blocks that every path through it shares. A path is a sequence of
block ids; two paths share a node exactly as far as they are equal. Requests are names for ends of paths.

    root -- [1 2] -- [3]      paths 1 2 3 and 1 2 6 9: the node [1 2] is shared,
                  `- [6 9]    a request ends at [3], another at [6 9]
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from contextpilot_core.errors import IntegrityError


class Node:
    """A run of blocks below ``parent``. Only `PrefixTree` changes it. ``requests``: those that end here, numbered."""

    __slots__ = ("blocks", "children", "parent", "requests", "tokens")

    def __init__(self, parent: "Node | None", blocks: list[int], tokens: int) -> None:
        self.parent = parent
        self.blocks = blocks
        self.tokens = tokens
        self.children: dict[int, Node] = {}
        self.requests: dict[str, int] = {}


class Wanted(NamedTuple):
    """The blocks that a path may have, best first, and of the ``optional`` ones how many; nodes to visit at most."""

    blocks: Sequence[int]
    max_visits: int
    optional: frozenset[int] = frozenset()
    allowance: int = 0


class PrefixTree:
    """Search, insert and remove paths; every operation is iterative, O(length of the path).

    ``weights`` maps a block id to its tokens (read only, shared with the owner of the ids). ``ends``: the node at which
    each live request ends, oldest first; others only read it.
    """

    def __init__(self, weights: Mapping[int, int]) -> None:
        self._weights = weights
        self.root = Node(None, [], 0)
        self.tokens = 0
        self.ends: dict[str, Node] = {}
        self._ended = 0  # requests that ever ended here: the next one's number

    # -- reading -------------------------------------------------------------------------------------------------

    def walk(self, path: Sequence[int]) -> tuple[Node, int, int]:
        """Follow ``path`` from the root: (node, blocks used of that node, blocks matched in all)."""
        node, used, matched = self.root, 0, 0
        for block in path:
            if used == len(node.blocks):
                child = node.children.get(block)
                if child is None:
                    break
                node, used = child, 1
            elif node.blocks[used] == block:
                used += 1
            else:
                break
            matched += 1
        return node, used, matched

    def longest(
        self,
        start: Node,
        used: int,
        wanted: Wanted,
    ) -> tuple[int, ...]:
        """Return the path below ``start`` of greatest tokens whose blocks are all wanted.

        Nodes are visited depth first, heavier edges first; equal paths: the first found. Children are looked up from
        the smaller side.
        """
        blocks_wanted, max_visits, optional, allowance = wanted
        inside = set(blocks_wanted)
        best, best_end, best_tokens = start, used, 0
        stack = [(start, used, 0, allowance)]  # node, blocks of it behind us, tokens so far, optional blocks left
        visits = 0
        while stack and visits < max_visits:
            node, offset, tokens, left = stack.pop()
            visits += 1
            blocks = node.blocks
            end = offset
            while end < len(blocks) and blocks[end] in inside:
                if optional and blocks[end] in optional:
                    if not left:
                        break
                    left -= 1
                end += 1
            if end > offset:
                tokens += node.tokens if end - offset == len(blocks) else self._sum(blocks[offset:end])
                if tokens > best_tokens:
                    best, best_end, best_tokens = node, end, tokens
            if end == len(blocks) and node.children:
                for child in _children_inside(node, blocks_wanted, inside):
                    stack.append((child, 0, tokens, left))
        return _path_between(start, used, best, best_end)

    def _sum(self, blocks: Sequence[int]) -> int:
        weights = self._weights
        return sum([weights[block] for block in blocks])

    def held_by(self, request_id: str) -> list[Node]:
        """Return the nodes that are there for one request only, from its end upward."""
        held: list[Node] = []
        node = self.ends.get(request_id)
        own = 0, 1  # children and requests of a node that are the request's: at its end itself, above what it holds
        while node is not None and node.parent is not None and (len(node.children), len(node.requests)) == own:
            held.append(node)
            node = node.parent
            own = 1, 0
        return held

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the root, parents before children."""
        stack = list(reversed(self.root.children.values()))
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    # -- writing -------------------------------------------------------------------------------------------------

    def insert(self, path: Sequence[int], request_id: str | None = None) -> tuple[list[Node], Sequence[int]]:
        """Make ``path`` present and let ``request_id`` end there: (its nodes from the top, the blocks that are new).

        Nodes are split so that every node of the result lies on the path with all of its blocks.
        """
        node, used, matched = self.walk(path)
        if used < len(node.blocks):
            node = self._split(node, used)
        fresh = path[matched:]
        if fresh:
            node = self.add(node, fresh)
        if request_id is not None:
            self.end(request_id, node)
        line = []
        while node.parent is not None:
            line.append(node)
            node = node.parent
        line.reverse()
        return line, fresh

    def add(self, parent: Node, blocks: Sequence[int]) -> Node:
        """Let a node of ``blocks``, of which the first is none of its children's, stand below ``parent``."""
        node = Node(parent, list(blocks), self._sum(blocks))
        parent.children[blocks[0]] = node
        self.tokens += node.tokens
        return node

    def end(self, request_id: str, node: Node) -> None:
        """Let a request that is not live end at ``node``."""
        node.requests[request_id] = self._ended
        self._ended += 1
        self.ends[request_id] = node

    def release(self, request_id: str) -> list[Node] | None:
        """Forget a request and prune upward what nobody needs: the removed nodes, or None for an unknown id."""
        removed = self.held_by(request_id)
        node = self.ends.pop(request_id, None)
        if node is None:
            return None
        del node.requests[request_id]
        for node in removed:
            self._unlink(node)
        return removed

    def trim(self, leaf: Node, blocks: int) -> tuple[list[int], list[str]]:
        """Take the last ``blocks`` blocks off a leaf: (the blocks, the requests that ended there, oldest first).

        When nothing is left of the leaf it goes, and its requests end at its parent; those that would end at the
        root are forgotten.
        """
        touched = sorted(leaf.requests, key=leaf.requests.__getitem__)  # those from below came later, but may be older
        cut = leaf.blocks[-blocks:]
        tokens = self._sum(cut)
        if blocks < len(leaf.blocks):
            del leaf.blocks[-blocks:]
            leaf.tokens -= tokens
            self.tokens -= tokens
            return cut, touched
        parent = self._unlink(leaf)
        at_root = parent.parent is None
        for request_id in touched:
            if at_root:
                del self.ends[request_id]
            else:
                parent.requests[request_id] = leaf.requests[request_id]
                self.ends[request_id] = parent
        leaf.requests.clear()
        return cut, touched

    def _split(self, node: Node, at: int) -> Node:
        """Cut ``node`` after ``at`` blocks; the new upper part takes its place, the lower part keeps the identity."""
        parent = node.parent
        if parent is None:
            raise IntegrityError("the root of a prefix tree has no blocks to split; this is a defect")
        head = node.blocks[:at]
        tokens = self._sum(head)
        upper = Node(parent, head, tokens)
        parent.children[head[0]] = upper
        del node.blocks[:at]
        node.tokens -= tokens
        node.parent = upper
        upper.children[node.blocks[0]] = node
        return upper

    def _unlink(self, node: Node) -> Node:
        """Take out a node: its parent."""
        parent = node.parent
        if parent is None:
            raise IntegrityError("the root of a prefix tree cannot be removed; this is a defect")
        del parent.children[node.blocks[0]]
        self.tokens -= node.tokens
        return parent

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless links, tokens and request ends agree."""
        seen_tokens = 0
        seen_requests = 0
        for node in self.nodes():
            parent = node.parent
            if parent is None or not node.blocks or parent.children.get(node.blocks[0]) is not node:
                raise IntegrityError("a node of the prefix tree is not linked to its parent")
            if node.tokens != sum(self._weights[block] for block in node.blocks):
                raise IntegrityError(f"a node of the prefix tree counts {node.tokens} tokens, its blocks differ")
            seen_tokens += node.tokens
            seen_requests += len(node.requests)
            if any(self.ends.get(request_id) is not node for request_id in node.requests):
                raise IntegrityError("a request of the prefix tree ends at another node than recorded")
        seen_requests += len(self.root.requests)
        if seen_tokens != self.tokens or seen_requests != len(self.ends):
            raise IntegrityError(
                f"the prefix tree counts {self.tokens} tokens and {len(self.ends)} requests, "
                f"its nodes hold {seen_tokens} and {seen_requests}"
            )


def _path_between(start: Node, used: int, end: Node, until: int) -> tuple[int, ...]:
    """Return the blocks after the first ``used`` of ``start`` to the first ``until`` of ``end``, which lies below."""
    if end is start:
        return tuple(start.blocks[used:until])
    parts = [end.blocks[:until]]
    node = end.parent
    while node is not None and node is not start:
        parts.append(node.blocks)
        node = node.parent
    parts.append(start.blocks[used:])
    return tuple([block for part in reversed(parts) for block in part])


def _children_inside(node: Node, wanted: Sequence[int], inside: Collection[int]) -> list[Node]:
    """Return the children whose first block is wanted, the heaviest edge last (a stack pops it first)."""
    children = node.children
    if len(children) < len(wanted):
        found = [child for block, child in children.items() if block in inside]
    else:
        found = [child for block in wanted if (child := children.get(block)) is not None]
    if len(found) > 1:
        found.sort(key=attrgetter("tokens"))
    return found
