"""What a view of the prefix cache can be asked and told; the ways of knowing are `CacheView`, `TruthView` and others.

A path is a sequence of block ids from the start of the prompt: the head first, then the context of this turn.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol


class View(Protocol):
    """What one namespace's part of the engine's prefix cache is believed to hold; its owner holds the lock."""

    @property
    def tokens(self) -> int:
        """Block tokens that are believed to be cached."""

    def __len__(self) -> int:
        """Return the number of live requests."""

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""

    def longest(
        self,
        head: Sequence[int],
        wanted: Sequence[int],
        *,
        max_visits: int,
        optional: frozenset[int] = frozenset(),
        allowance: int = 0,
    ) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and stays inside ``wanted``."""

    def usual(self, head: Sequence[int], wanted: Sequence[int], **search: Any) -> tuple[int, ...]:
        """Return the path that plans took so far, cached or not, where that may differ from `longest`; else nothing."""

    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used: a number that grows, 0 when nothing is cached."""

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Take ``path`` in as the latest used: the requests whose last blocks had to go for it."""

    def release(self, request_id: str) -> int | None:
        """Forget a request and what only it held: the tokens that were freed, or None for an unknown id."""

    def references(self) -> Counter[int]:
        """Return how often the view refers to each block id."""

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the state is sound."""
