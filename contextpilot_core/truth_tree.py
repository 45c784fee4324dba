"""Paths whose KV blocks are known: which of them the engine still caches is looked up, never remembered.

A *place* is one block of a path; ``keys`` are the KV blocks (their chained digests) that end inside its tokens. A
place is reusable when every KV block from the start of the prompt to its end is cached, so the first missing one cuts
off all that follows. A place without any (a short block) counts only when a later one does.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence

from contextpilot_core.blocks import BlockTable
from contextpilot_core.errors import IntegrityError

Keys = tuple[bytes, ...]
Ends = Sequence[int | None]

PLACES_PER_NODE = 8
"""Places that may be visited for one node of a prefix tree, which holds runs of blocks (`EngineConfig.max_visits`)."""


class _Place:
    __slots__ = ("block", "children", "keys", "parent", "requests")

    def __init__(self, parent: "_Place | None", block: int) -> None:
        self.parent = parent
        self.block = block
        self.keys: Keys = ()
        self.children: dict[int, _Place] = {}
        self.requests: dict[str, None] = {}


class TruthTree:
    """A trie of places; ``holds(keys)`` tells whether the engine caches all of these KV blocks right now."""

    def __init__(self, blocks: BlockTable, holds: Callable[[Keys], bool]) -> None:
        self._blocks = blocks
        self._holds = holds
        self._root = _Place(None, -1)
        self._ends: dict[str, _Place] = {}  # oldest record first

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._ends)

    # -- reading -------------------------------------------------------------------------------------------------

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        return max((depth for depth, place in enumerate(self._cached(path), start=1) if place.keys), default=0)

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

        Empty when the head is not cached. ``optional`` and ``allowance`` as in `PrefixTree.longest`.
        """
        passed = list(self._cached(head))
        if len(passed) < len(head):
            return ()
        start = passed[-1] if passed else self._root
        weights = self._blocks.tokens
        best, best_tokens = start, 0
        stack = [(start, 0, allowance)]
        for _ in range(max_visits * PLACES_PER_NODE):
            if not stack:
                break
            place, tokens, left = stack.pop()
            if place.keys and tokens > best_tokens:
                best, best_tokens = place, tokens
            for child in self._children_inside(place, wanted):
                spent = child.block in optional
                if spent <= left and self._holds(child.keys):
                    stack.append((child, tokens + weights[child.block], left - spent))
        return _path_between(start, best)

    def _cached(self, path: Sequence[int]) -> Iterator[_Place]:
        place = self._root
        for block in path:
            child = place.children.get(block)
            if child is None or not self._holds(child.keys):
                return
            yield child
            place = child

    def _children_inside(self, place: _Place, wanted: Sequence[int]) -> list[_Place]:
        """Return the children that are wanted, the heaviest last (a stack pops it first)."""
        children = place.children
        if len(children) < len(wanted):
            inside = set(wanted)
            found = [child for block, child in children.items() if block in inside]
        else:
            found = [child for block in wanted if (child := children.get(block)) is not None]
        found.sort(key=lambda child: self._blocks.tokens[child.block])
        return found

    # -- writing -------------------------------------------------------------------------------------------------

    def record(self, request_id: str, path: Sequence[int], keys: Keys, ends: Ends) -> None:
        """Let ``request_id`` hold ``path``. ``ends``: per block, how many of ``keys`` have ended with it, or None.

        Where that is unknown, the KV blocks count for the next place at which it is known. What is known of a place
        already is replaced where it differs: the chat template or the tools may have changed.
        """
        self.release(request_id)
        place, done = self._root, 0
        for block, end in zip(path, ends, strict=True):
            child = place.children.get(block)
            if child is None:
                child = place.children[block] = _Place(place, block)
                self._blocks.acquire((block,))
            known = done + len(child.keys)
            if child.keys != keys[done:known] or (end is not None and known != end):
                child.keys = () if end is None else keys[done:end]
            done += len(child.keys)
            place = child
        if place is not self._root:
            place.requests[request_id] = None
            self._ends[request_id] = place

    def release(self, request_id: str) -> bool:
        """Forget a request and the places that only it needed. Returns whether it was known."""
        place = self._ends.pop(request_id, None)
        if place is None:
            return False
        del place.requests[request_id]
        while place.parent is not None and not place.children and not place.requests:
            del place.parent.children[place.block]
            self._blocks.release((place.block,))
            place = place.parent
        return True

    def prune(self, limit: int, keep: Container[str] = ()) -> None:
        """Forget the oldest requests beyond ``limit``, and of the two oldest those whose last block is not cached.

        Called with every record it keeps the tree at what the engine holds, at a constant cost. Requests to ``keep``
        are not judged: their events may not have come yet.
        """
        for request_id in list(self._ends)[: max(0, len(self._ends) - limit)]:
            self.release(request_id)
        for request_id in [name for name, _ in zip(self._ends, range(2), strict=False)]:
            place = self._ends[request_id]
            while not place.keys and place.parent is not None:
                place = place.parent
            if request_id in keep or (place.keys and self._holds(place.keys)):
                self._ends[request_id] = self._ends.pop(request_id)
            else:
                self.release(request_id)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless links and request ends agree and no place is without purpose."""
        ends = 0
        for place in self._places():
            if place.parent is None or place.parent.children.get(place.block) is not place:
                raise IntegrityError("a place of the truth tree is not linked to its parent")
            if not place.children and not place.requests:
                raise IntegrityError("a place of the truth tree serves no request")
            ends += sum(self._ends.get(request_id) is place for request_id in place.requests)
        if ends != len(self._ends):
            raise IntegrityError(f"the truth tree lists {len(self._ends)} requests, its places hold {ends}")

    def references(self) -> Counter[int]:
        """Return how often the tree refers to each block id."""
        return Counter(place.block for place in self._places())

    def _places(self) -> Iterator[_Place]:
        stack = list(self._root.children.values())
        while stack:
            place = stack.pop()
            yield place
            stack.extend(place.children.values())


def _path_between(start: _Place, end: _Place) -> tuple[int, ...]:
    path = []
    while end is not start and end.parent is not None:
        path.append(end.block)
        end = end.parent
    return tuple(reversed(path))
