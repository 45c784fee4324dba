"""What a view of the prefix cache can be asked and told, whatever it knows that from."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core.cache.tree import Wanted

Path = tuple[int, ...]
"""Ids of blocks from the start of the prompt: the head first, then the context of this turn; or the part behind it."""

Keys = tuple[bytes, ...]
"""Names of KV blocks, each for all tokens up to its end."""

Ends = Sequence[int | None]
"""Per block of a path, how many of the keys of its prompt have ended with it; None where unknown."""


@dataclass(frozen=True, slots=True)
class Located:
    """A path of blocks in the KV blocks of its prompt."""

    path: Sequence[int]
    keys: Keys
    ends: Ends


class View(ABC):
    """What one namespace's part of the server's prefix cache is believed to hold; its owner holds the lock."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Block tokens that are believed to be cached."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of live requests."""

    @abstractmethod
    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""

    @abstractmethod
    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""

    @abstractmethod
    def longest(self, head: Sequence[int], wanted: Wanted) -> Path:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``.

        Empty when the head itself is not cached.
        """

    def usual(self, head: Sequence[int], wanted: Wanted) -> Path:
        """Return the path that plans took so far, cached or not, where that may differ from `longest`; else nothing."""
        return ()

    @abstractmethod
    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used: a number that grows, 0 when nothing is cached."""

    @abstractmethod
    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Take ``path`` in as the latest used: the requests whose last blocks had to go for it."""

    @abstractmethod
    def release(self, request_id: str) -> int | None:
        """Forget a request and what only it held: the tokens that were freed, or None for an unknown id."""

    @property
    def on_truth(self) -> bool:
        """Whether questions are answered by what the server said."""
        return False

    def record(self, request_id: str, context: int, keys: Keys, counts: Ends) -> Located | None:
        """Learn the KV blocks of a prompt that was sent, and return them; None where they are of no use.

        ``context``: how many blocks of its path come after the head; ``counts``: how many of ``keys`` end before the
        context, then with each of its blocks, None where unknown (they may go on, or be too few).
        """
        return None

    def learn(self, request_id: str, located: Located) -> None:  # noqa: B027  # an estimate has no use for them
        """Learn the KV blocks of a prompt that another process sent, where they are of use."""

    @abstractmethod
    def references(self) -> Counter[int]:
        """Return how often the view refers to each block id."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the state is sound."""
