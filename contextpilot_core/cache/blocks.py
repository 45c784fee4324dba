"""Interned blocks: a small int for every body digest that the state of one namespace still refers to."""

from collections.abc import Callable, Iterable, Mapping

from contextpilot_core.errors import IntegrityError


class BlockTable:
    """Maps digests to ids and counts references; an id without references is forgotten and never used again."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self.tokens: dict[int, int] = {}  # by id; others only read it
        self._references: dict[int, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, digest: bytes) -> int | None:
        """Return the id of ``digest``, None when nothing refers to it."""
        return self._ids.get(digest)

    def digest(self, block: int) -> bytes:
        """Return the digest of a known id."""
        return self._digests[block]

    def intern(self, digest: bytes, weigh: Callable[[], int]) -> int:
        """Return the id of ``digest`` with one reference more; a new one weighs ``max(1, weigh())`` tokens."""
        known = self._ids.get(digest)
        if known is not None:
            self._references[known] += 1
            return known
        tokens = max(1, weigh())
        block = self._next
        self._next += 1
        self._ids[digest] = block
        self._digests[block] = digest
        self.tokens[block] = tokens
        self._references[block] = 1
        return block

    def intern_path(self, path: Iterable[tuple[bytes, int]]) -> list[int]:
        """Return the ids of (digest, tokens), each with one reference more; known ones keep their tokens."""
        return [self.intern(digest, lambda tokens=tokens: tokens) for digest, tokens in path]  # type: ignore[misc]

    def describe(self, path: Iterable[int]) -> tuple[tuple[bytes, int], ...]:
        """Return (digest, tokens) of known ids."""
        return tuple([(self._digests[block], self.tokens[block]) for block in path])

    def acquire(self, blocks: Iterable[int]) -> None:
        """Count one reference more for each id."""
        references = self._references
        for block in blocks:
            references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Count one reference less for each id; forget those without any."""
        references = self._references
        for block in blocks:
            references[block] -= 1
            if references[block] <= 0:
                self._forget(block)

    def _forget(self, block: int) -> None:
        del self._ids[self._digests.pop(block)]
        del self.tokens[block]
        del self._references[block]

    def check_integrity(self, held: Mapping[int, int]) -> None:
        """Raise `IntegrityError` unless the references are exactly ``held`` (id -> count)."""
        if self._references != dict(held) or self._ids.keys() != set(self._digests.values()):
            raise IntegrityError(
                f"the block table counts {sum(self._references.values())} references to {len(self._ids)} blocks, "
                f"its users hold {sum(held.values())} to {len(held)}"
            )
