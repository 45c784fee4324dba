"""The KV blocks of one data-parallel rank, present and past: who holds which copy of what (used by `KVMirror`)."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import islice

from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.events import BlockHash

_REMEMBERED = 100_000


class _Block:
    """A block: its physical copies per KV cache group, its key unless it is an orphan, and its present stay.

    A stay begins (``since``) when all ``groups`` that are known by then hold the block; 0 groups: there is none. It
    ends when one of them lets go of it, or when one more group turns up, which is looked at only when it matters.
    """

    __slots__ = ("copies", "groups", "key", "since")

    def __init__(self) -> None:
        self.copies: Counter[int | None] = Counter()
        self.key: bytes | None = None
        self.since = self.groups = 0


class Rank:
    """A cache that shares nothing with other ranks. ``moment`` numbers the states; they never go back."""

    def __init__(self) -> None:
        self._blocks: dict[BlockHash, _Block] = {}
        self._by_key: dict[bytes, _Block] = {}
        self._groups: dict[int | None, int] = {}  # -> the moment at which it turned up, in that order
        self._past: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # the last stay that ended: since, until

    def __len__(self) -> int:
        """Return the number of blocks, orphans included."""
        return len(self._blocks)

    @property
    def reusable(self) -> int:
        """The number of blocks whose content is known."""
        return len(self._by_key)

    def add(self, name: BlockHash, group: int | None, key: bytes | None, moment: int) -> None:
        """Count one copy more of a block; ``key`` is None for an orphan."""
        self._groups.setdefault(group, moment)
        block = self._blocks.setdefault(name, _Block())
        block.copies[group] += 1
        # Two hashes of one key: the engine does not say what tells them apart, so only the first counts.
        if block.key is None and key is not None and key not in self._by_key:
            block.key = key
            self._by_key[key] = block
        if block.groups < len(self._groups) == len(block.copies):
            self._begin_stay(block, moment)

    def remove(self, name: BlockHash, group: int | None, moment: int) -> bool:
        """Count one copy less. Returns whether such a copy was known."""
        block = self._blocks.get(name)
        if block is None or not block.copies[group]:
            return False
        block.copies[group] -= 1
        if not block.copies[group]:
            del block.copies[group]
            self._end_stay(block, moment)
        if not block.copies:
            del self._blocks[name]
            if block.key is not None:
                del self._by_key[block.key]
        return True

    def clear(self, moment: int) -> None:
        """Let all blocks go."""
        for block in self._by_key.values():
            self._end_stay(block, moment)
        self._by_key.clear()
        self._blocks.clear()
        self._groups.clear()

    def key_of(self, name: BlockHash) -> bytes | None:
        """Return the key of a block; None when it is unknown or an orphan."""
        block = self._blocks.get(name)
        return block.key if block is not None else None

    def holds(self, key: bytes, at: int | None = None) -> bool:
        """Tell whether a block is (or, at the moment ``at``, was) there in all groups."""
        block = self._by_key.get(key)
        if at is None:
            return block is not None and block.groups == len(self._groups)
        if block is not None and block.groups and block.since <= at < self._until(block, at + 1):
            return True
        since, until = self._past.get(key, (0, 0))
        return since <= at < until

    def holds_all(self, keys: Sequence[bytes]) -> bool:
        """Tell whether all of ``keys`` are there now."""
        if len(self._groups) > 1:
            return all(map(self.holds, keys))
        return all(map(self._by_key.__contains__, reversed(keys)))  # tails are evicted first

    def leading(self, keys: Sequence[bytes], at: int | None = None) -> int:
        """Return how many of ``keys`` are there, up to the first that is not."""
        return next((number for number, key in enumerate(keys) if not self.holds(key, at)), len(keys))

    def _begin_stay(self, block: _Block, moment: int) -> None:
        """Take note that all groups hold a block, unless it is an orphan; without a gap the stay before goes on."""
        if block.key is None:
            return
        self._end_stay(block, moment)
        since, until = self._past.get(block.key, (0, 0))
        block.since = since if until == moment else moment
        block.groups = len(self._groups)

    def _end_stay(self, block: _Block, moment: int) -> None:
        if block.key is None or not block.groups:
            return
        until = self._until(block, moment)
        block.groups = 0
        if block.since < until:
            self._past[block.key] = block.since, until
            self._past.move_to_end(block.key)
            if len(self._past) > _REMEMBERED:
                self._past.popitem(last=False)

    def _until(self, block: _Block, moment: int) -> int:
        """Return when a group turned up that the stay of a block does not know; ``moment`` when none did."""
        return next(islice(self._groups.values(), block.groups, None), moment)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless blocks, copies and keys agree."""
        for name, block in self._blocks.items():
            if not block.copies or min(block.copies.values()) < 1 or not block.copies.keys() <= self._groups.keys():
                raise IntegrityError(f"block {name!r} of the mirror has copies {dict(block.copies)}")
            if block.key is not None and self._by_key.get(block.key) is not block:
                raise IntegrityError(f"block {name!r} of the mirror is not found by its key")
            everywhere = block.key is not None and block.copies.keys() == self._groups.keys()
            if (block.groups == len(self._groups)) != everywhere:
                raise IntegrityError(f"block {name!r} of the mirror is in {block.groups} groups, its copies differ")
        if len(self._by_key) != sum(block.key is not None for block in self._blocks.values()):
            raise IntegrityError("the mirror finds keys of blocks that left")
