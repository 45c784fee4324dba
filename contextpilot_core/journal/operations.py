"""What application processes tell each other, so that they share one view of one prefix cache (docs: "Workers").

Every change of the shared state is an operation. A log that all workers write to and read from puts the operations
into one order; the state is a function of that order alone (`LogState`). Operations hold digests, never a text.
"""

from dataclasses import dataclass
from typing import TypeAlias

from contextpilot_core.cache import CacheState
from contextpilot_core.prompt import KnownRecord, MessageRecord


@dataclass(frozen=True, slots=True)
class Inserted:
    """A request took its place. ``path``: (digest, tokens) of its blocks from the start of the prompt."""

    namespace: str
    request_id: str | None
    path: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A request was sent, and holds what is known of the messages ``keys`` that it carries."""

    namespace: str
    request_id: str
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """The message ``key`` was rendered for a request; ``record`` says what it shows."""

    namespace: str
    request_id: str
    key: bytes
    record: MessageRecord


@dataclass(frozen=True, slots=True)
class Released:
    """A request was evicted or taken back."""

    namespace: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """The KV blocks of a request that was served are known. News for those who read on, and no part of the state.

    ``path`` as in `Inserted`. ``keys``: those of the leading KV blocks, closed (`mirror.keys`). ``ends``: per block of
    the path, how many of the keys have ended with it; None where unknown.
    """

    namespace: str
    request_id: str
    path: tuple[tuple[bytes, int], ...]
    keys: bytes
    ends: tuple[int | None, ...]

    def __post_init__(self) -> None:
        """Check the lengths. Raises `ValueError`."""
        if len(self.path) != len(self.ends):
            raise ValueError(f"{len(self.path)} blocks have {len(self.ends)} ends")


@dataclass(frozen=True, slots=True)
class Reset:
    """A namespace was forgotten; None: all of them."""

    namespace: str | None


Operation: TypeAlias = Inserted | Committed | Rendered | Released | Recorded | Reset


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation as it stands in the log.

    ``number`` counts the operations of one ``worker`` from 1: an entry that comes twice is known by it. ``at`` is the
    log's own time in seconds, the same for all who read the entry.
    """

    worker: str
    number: int
    operation: Operation
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """One namespace as values. ``blocks``: (digest, tokens); the blocks of ``cache`` are places in it."""

    namespace: str
    blocks: tuple[tuple[bytes, int], ...]
    cache: CacheState
    records: tuple[KnownRecord, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The shared state as values: equal states have equal snapshots.

    ``numbers``: the last operation of each worker that is part of it, the longest silent worker first.
    """

    entries: int
    time: float
    numbers: tuple[tuple[str, int], ...]
    namespaces: tuple[NamespaceSnapshot, ...]
