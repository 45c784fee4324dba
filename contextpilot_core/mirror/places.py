"""Paths whose KV blocks are known: which of them the engine still caches is looked up, never remembered.

A *place* is one block of a path in the prompts of one kind; ``keys`` are the KV blocks (their chained digests) that end
inside its tokens. A place is reusable when every KV block from the start of the prompt to its end is cached, so the
first missing one cuts off all that follows. A place in which none ends counts as cached only if a later place does.
The same block has several places below one, *variants*, where other tools or templates stand before it.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence

from contextpilot_core.cache import BlockTable, Ends, Keys, Wanted
from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.mirror import KVMirror

PLACES_PER_NODE = 2
"""Places that may be visited for one node of a prefix tree, which holds runs of blocks (`EngineConfig.max_visits`)."""


class _Place:
    __slots__ = ("asked_at", "block", "children", "held", "keys", "parent", "requests")

    def __init__(self, parent: "_Place | None", block: int, keys: Keys) -> None:
        self.parent = parent
        self.block = block
        self.keys = keys
        self.children: dict[int, list[_Place]] = {}
        self.requests: dict[str, None] = {}
        self.asked_at, self.held = -1, False  # the last answer, which holds for its moment


class TruthTree:
    """A trie of places over what the engine caches: ``kv_blocks``, whose ``moment`` grows when an answer may change."""

    def __init__(self, blocks: BlockTable, kv_blocks: KVMirror) -> None:
        self._blocks = blocks
        self._kv_blocks = kv_blocks
        self._root = _Place(None, -1, ())
        self._ends: dict[str, _Place] = {}  # oldest record first

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._ends)

    # -- reading -------------------------------------------------------------------------------------------------

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        levels = enumerate(self._cached(path), start=1)
        return max((depth for depth, places in levels if any(place.keys for place in places)), default=0)

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``.

        Empty when the head is not cached.
        """
        levels = list(self._cached(head))
        if len(levels) < len(head):
            return ()
        starts = levels[-1] if levels else [self._root]
        moment, weights = self._kv_blocks.moment, self._blocks.tokens
        best, best_tokens = starts[0], 0
        stack = [(start, 0, wanted.allowance) for start in reversed(starts)]
        visits = wanted.max_visits * PLACES_PER_NODE
        while stack and visits:
            place, tokens, left = stack.pop()
            if not self._is_held(place, moment):
                continue
            visits -= 1
            if place.keys and tokens > best_tokens:
                best, best_tokens = place, tokens
            for child in self._children_inside(place, wanted.blocks):
                spent = child.block in wanted.optional
                if spent <= left:
                    stack.append((child, tokens + weights[child.block], left - spent))
        return _path_to(best)[len(head) :]

    def _cached(self, path: Sequence[int]) -> Iterator[list[_Place]]:
        """Yield the cached places of each leading block of ``path``: usually one."""
        places, moment = [self._root], self._kv_blocks.moment
        for block in path:
            places = [
                child for place in places for child in place.children.get(block, ()) if self._is_held(child, moment)
            ]
            if not places:
                return
            yield places

    def _is_held(self, place: _Place, moment: int) -> bool:
        if place.asked_at != moment:
            place.asked_at, place.held = moment, self._kv_blocks.holds(place.keys)
        return place.held

    def _children_inside(self, place: _Place, wanted: Sequence[int]) -> list[_Place]:
        """Return the children that are wanted, the heaviest last (a stack pops it first)."""
        children, weights = place.children, self._blocks.tokens
        if len(children) < len(wanted):
            inside = set(wanted)
            found = [child for block, variants in children.items() if block in inside for child in variants]
        else:
            found = [child for block in wanted if block in children for child in children[block]]
        if len(found) > 1:
            found.sort(key=lambda child: weights[child.block])
        return found

    # -- writing -------------------------------------------------------------------------------------------------

    def record(self, request_id: str, path: Sequence[int], keys: Keys, ends: Ends) -> None:
        """Let ``request_id`` hold ``path``. ``ends``: per block, how many of ``keys`` have ended with it, or None.

        Where that is unknown, the KV blocks count for the next place at which it is known.
        """
        steps = list(zip(path, ends, strict=True))
        self.release(request_id)
        place, done = self._root, 0
        for block, end in steps:
            place = self._child(place, block, keys[done:], None if end is None else max(0, end - done))
            done += len(place.keys)
        if place is not self._root:
            place.requests[request_id] = None
            self._ends[request_id] = place

    def _child(self, place: _Place, block: int, keys: Keys, count: int | None) -> _Place:
        """Return the variant of ``block`` whose KV blocks are the first ``count`` of ``keys`` (None: some of them)."""
        fitting = [
            child
            for child in place.children.get(block, ())
            if count in (None, len(child.keys)) and child.keys == keys[: len(child.keys)]
        ]
        if fitting:
            return max(fitting, key=lambda child: len(child.keys))
        child = _Place(place, block, keys[: count or 0])
        place.children.setdefault(block, []).append(child)
        self._blocks.acquire((block,))
        return child

    def release(self, request_id: str) -> bool:
        """Forget a request and the places that only it needed. Returns whether it was known."""
        place = self._ends.pop(request_id, None)
        if place is None:
            return False
        del place.requests[request_id]
        self._drop_unused(place)
        return True

    def _drop_unused(self, place: _Place) -> None:
        while place.parent is not None and not place.children and not place.requests:
            variants = place.parent.children[place.block]
            variants.remove(place)
            if not variants:
                del place.parent.children[place.block]
            self._blocks.release((place.block,))
            place = place.parent

    def prune(self, limit: int, keep: Container[str] = ()) -> None:
        """Forget the oldest requests beyond ``limit``, and of the two oldest what is no longer cached at their end.

        Called with every record it keeps the tree at what the engine holds, at a constant cost. Requests to ``keep``
        are not judged: their events may not have come yet.
        """
        while len(self._ends) > limit:
            self.release(next(iter(self._ends)))
        for request_id in [name for name, _ in zip(self._ends, range(2), strict=False)]:
            if request_id not in keep:
                self._shorten(request_id)
            if request_id in self._ends:
                self._ends[request_id] = self._ends.pop(request_id)

    def _shorten(self, request_id: str) -> None:
        """Let a request end with the last place that is cached; where others pass by it is not needed."""
        end = place = self._ends[request_id]
        while place.parent is not None and not (place.keys and self._is_held(place, self._kv_blocks.moment)):
            place = place.parent
        if place is end:
            return
        if place.parent is not None:
            place.requests[request_id] = None
        del end.requests[request_id], self._ends[request_id]
        self._drop_unused(end)
        if place.children or len(place.requests) > 1:
            place.requests.pop(request_id, None)
        elif place.parent is not None:
            self._ends[request_id] = place

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless links and request ends agree and no place is without purpose."""
        ends = 0
        for place in self._places():
            if place.parent is None or place not in place.parent.children.get(place.block, ()):
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
        stack = [self._root]
        while stack:
            for variants in stack.pop().children.values():
                yield from variants
                stack.extend(variants)


def _path_to(place: _Place) -> tuple[int, ...]:
    path = []
    while place.parent is not None:
        path.append(place.block)
        place = place.parent
    return tuple(reversed(path))
