"""What is known of the messages of conversations, so that a hint points only to what a message really shows.

Nothing here can outlive the messages: a record is only ever used for a message that stands in the request at hand,
so a hint cannot dangle (docs: "De-duplication", rule 1). Records of rendered messages, and of those that others
wrote, are bounded in number and in time; each belongs to the latest requests that carried its message and goes when
the last of them is evicted.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from contextpilot_core.errors import IntegrityError
from contextpilot_core.prompt.messages import ANSWER_ROLES, HistoryMessage
from contextpilot_core.prompt.visible import (
    NOTHING,
    ForeignRecord,
    Given,
    Known,
    MessageRecord,
    Visible,
    foreign_record,
)

_MOST_OWNERS = 64
_PER_OWNER = 250
"""Bytes of memory for one request that holds one message, about."""


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """What is remembered of one rendered message: ``seen`` in seconds of the clock, the requests that hold it."""

    key: bytes
    record: MessageRecord
    seen: float
    owners: tuple[str, ...]


class SharedRecords(Protocol):
    """Records that several processes share; they are told what happens here."""

    def get(self, key: bytes) -> MessageRecord | None:
        """Return the record of a message that one of the processes rendered, or None."""

    def rendered(self, key: bytes, record: MessageRecord, owner: str) -> None:
        """Take note of a message that was rendered here."""

    def held(self, keys: Sequence[bytes], owner: str) -> None:
        """Take note of a request that holds what is known of rendered messages."""


class Conversations:
    """What is known of messages in one namespace, the least recently seen dropped first.

    ``clock`` gives seconds; what was unseen for ``seconds`` is forgotten. Every entry is held by the latest requests
    that carried its message, and goes with the last of them. ``shared`` is asked for what is not known here.
    ``room``: bytes that all may take, see `bound`; None is no limit.
    ``lock``: the engine's; `view` takes it by itself, around all else its owner does.
    """

    def __init__(
        self,
        *,
        limit: int,
        seconds: float,
        clock: Callable[[], float],
        shared: SharedRecords | None = None,
        lock: AbstractContextManager[object] | None = None,
        room: int | None = None,
    ) -> None:
        self._room = room
        self.size = 0  # bytes, about
        self._sizes: dict[bytes, int] = {}
        self._lock = lock or nullcontext()
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._shared = shared
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._given: dict[bytes, Given] = {}  # of this process alone: what callers gave stays here
        self._seen: dict[bytes, float] = {}
        self._owners: dict[bytes, dict[str, None]] = {}
        self._owned: dict[str, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: bytes) -> MessageRecord | None:
        """Return the record of a message that we rendered, or None."""
        found = self._known.get(key)
        if isinstance(found, MessageRecord):
            return found
        return None if self._shared is None else self._shared.get(key)

    def view(self, history: Iterable[HistoryMessage], doubtful: frozenset[int] = frozenset()) -> Visible:
        """Tell what the messages at hand show; hints may point to user and tool messages only.

        ``doubtful``: labels that the documents and the question of this request seem to show, too. Takes the lock for
        what is known, and reads the other messages without it.
        """
        history = tuple(history)
        with self._lock:
            self.forget_old()
            remembered = [self.get(message.key) or self._known.get(message.key) for message in history]
        shown: list[tuple[MessageRecord, str]] = []
        foreign: list[tuple[ForeignRecord, str | None]] = []
        known: list[tuple[bytes, Known]] = []
        given: list[Given | None] = []
        for message, found in zip(history, remembered, strict=True):
            if found is None:
                content = message.message.get("content") if message.text is None else message.text
                answer = message.message["role"] in ANSWER_ROLES
                found = foreign_record(content, readable=message.text is not None, answer=answer)
            if isinstance(found, MessageRecord):
                shown.append((found, message.text or ""))
                given.append(self._given.get(message.key))  # what is gone meanwhile is read from the message
            else:
                foreign.append((found, message.text))
            known.append((message.key, found))
        if not known and not doubtful:
            return NOTHING
        return Visible(tuple(shown), tuple(foreign), tuple(known), tuple(given), doubtful)

    def record(self, key: bytes, record: MessageRecord, owner: str, given: Given | None = None) -> None:
        """Remember a message that was rendered for request ``owner``, and what it was rendered from."""
        self._known[key] = record
        if given is not None:
            self._given[key] = given
        self._weigh(key)
        self._hold(((key, record),), owner)
        if self._shared is not None:
            self._shared.rendered(key, record, owner)

    def adopt(self, known: Sequence[tuple[bytes, Known]], owner: str) -> None:
        """Let ``owner``, a request that carries these messages, hold what is known of them."""
        self._hold(known, owner)
        if self._shared is not None:
            keys = [key for key, value in known if isinstance(value, MessageRecord)]
            if keys:
                self._shared.held(keys, owner)

    def _hold(self, known: Iterable[tuple[bytes, Known]], owner: str) -> None:
        now = self._clock()
        for key, value in known:
            if key not in self._known:
                if isinstance(value, MessageRecord):
                    continue  # released since it was seen: it does not come back
                self._known[key] = value
                self._weigh(key)
            self._known.move_to_end(key)
            self._seen[key] = now
            owners = self._owners.setdefault(key, {})
            if owner not in owners:
                owners[owner] = None
                self._owned.setdefault(owner, {})[key] = None
                self.size += _PER_OWNER
            if len(owners) > _MOST_OWNERS:
                self._disown(key, next(iter(owners)))
        self._fit()

    def bound(self, room: int) -> None:
        """Take at most ``room`` bytes from now on: the least recently seen messages go until the others fit."""
        self._room = room
        self._fit()

    def _fit(self) -> None:
        while self._known and (len(self._known) > self._limit or (self._room is not None and self.size > self._room)):
            self._drop(next(iter(self._known)))

    def _weigh(self, key: bytes) -> None:
        given = self._given.get(key)
        size = self._known[key].size + (0 if given is None else given.size)
        self.size += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def release(self, owner: str) -> bool:
        """Let ``owner`` hold nothing; tell whether it held anything. What nobody holds any more is forgotten."""
        keys = list(self._owned.get(owner, ()))
        for key in keys:
            self._disown(key, owner)
            if not self._owners[key]:
                self._drop(key)
        return bool(keys)

    def forget_old(self) -> None:
        """Drop what was unseen for too long."""
        oldest_allowed = self._clock() - self._seconds
        while self._known:
            key = next(iter(self._known))
            if self._seen[key] > oldest_allowed:
                break
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        for owner in list(self._owners[key]):
            self._disown(key, owner)
        self._given.pop(key, None)
        self.size -= self._sizes.pop(key)
        del self._known[key], self._seen[key], self._owners[key]

    def _disown(self, key: bytes, owner: str) -> None:
        del self._owners[key][owner]
        self.size -= _PER_OWNER
        held = self._owned[owner]
        del held[key]
        if not held:
            del self._owned[owner]

    def state(self) -> tuple[KnownRecord, ...]:
        """Return the records as values, the least recently seen first."""
        return tuple(
            KnownRecord(key, known, self._seen[key], tuple(self._owners[key]))
            for key, known in self._known.items()
            if isinstance(known, MessageRecord)
        )

    def restore(self, state: Iterable[KnownRecord]) -> None:
        """Know what ``state`` says; only where nothing is known yet."""
        for entry in state:
            self._known[entry.key] = entry.record
            self._seen[entry.key] = entry.seen
            self._owners[entry.key] = dict.fromkeys(entry.owners)
            self._weigh(entry.key)
            self.size += _PER_OWNER * len(entry.owners)
            for owner in entry.owners:
                self._owned.setdefault(owner, {})[entry.key] = None

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless every entry has a time and an owner, and owners agree with what they hold."""
        pairs = {(key, owner) for key, owners in self._owners.items() for owner in owners}
        held = {(key, owner) for owner, keys in self._owned.items() for key in keys}
        if pairs != held or not set(self._known) == set(self._seen) == {key for key, _ in pairs}:
            raise IntegrityError(
                f"{len(self._known)} messages are known, {len(self._owners)} have owners, {len(self._seen)} have times"
            )
        if not set(self._given) <= set(self._known):
            raise IntegrityError(f"documents are known of {len(self._given)} messages, not all of which are known")
        pairs_size = _PER_OWNER * len(pairs)
        if self._sizes.keys() != self._known.keys() or self.size != sum(self._sizes.values()) + pairs_size:
            raise IntegrityError(f"{self.size} bytes are counted for {len(self._sizes)} of {len(self._known)} messages")
        if self._room is not None and self.size > self._room:
            raise IntegrityError(f"messages take {self.size} bytes, more than {self._room}")
        if len(self._known) > self._limit:
            raise IntegrityError(f"more than {self._limit} messages are remembered")
