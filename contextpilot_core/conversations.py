"""What the messages of a conversation show: records of the messages that we rendered, found by digest alone.

Nothing here can outlive the messages: a record is only ever used for a message that stands in the request at hand,
so a hint cannot dangle (docs: "De-duplication", rule 1). Records, and profiles of the messages that others
wrote, are bounded in number and in time; each belongs to the latest request that carried its message and goes when
that request is evicted.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from contextpilot_core.dedup import MessageProfile, paragraph_keys, profile, shows_block, sources_in
from contextpilot_core.errors import IntegrityError
from contextpilot_core.intake import HistoryMessage
from contextpilot_core.types import SpanSource

_LABEL_LINE = re.compile(r"^\[Doc (\d{1,9})\]\n===", re.MULTILINE)


@dataclass(frozen=True)
class MessageRecord:
    """What one rendered message shows.

    labels: body digest -> label, for blocks that stand there literally as a whole.
    highest: the highest label that the message renders or points to (0: none).
    path: (digest, tokens) of the leading blocks before the first hint: their place in the prefix cache.
    pieces: (label, start, length) of every literal run in the message's text.
    """

    labels: Mapping[bytes, int]
    highest: int
    path: tuple[tuple[bytes, int], ...]
    pieces: tuple[tuple[int, int, int], ...]
    _sources: list[SpanSource] = field(default_factory=list, repr=False)

    def sources(self, text: str) -> Sequence[SpanSource]:
        """Return the literal runs with their anchors; ``text`` is the message's. Worked out once per record."""
        if not self._sources and self.pieces:
            self._sources[:] = sources_in(text, self.pieces)  # at once: another thread may do the same
        return self._sources


@dataclass(frozen=True)
class ForeignText:
    """A user or tool message that we did not render, or no longer know."""

    text: str
    profile: MessageProfile

    @cached_property
    def labels(self) -> frozenset[int]:
        """Numbers of what looks like our label lines: a hint to one of them could be misread, so none is made."""
        return frozenset(int(number) for number in _LABEL_LINE.findall(self.text))


@dataclass(frozen=True)
class Visible:
    """What the messages of one request show, in the order of the messages."""

    shown: tuple[tuple[MessageRecord, str], ...] = ()
    foreign: tuple[ForeignText, ...] = ()
    known: tuple[tuple[bytes, "MessageRecord | MessageProfile"], ...] = ()

    @cached_property
    def _clear(self) -> frozenset[int]:
        """Labels that stand for one thing only; a hint may name no other."""
        uses: Counter[int] = Counter()
        for record, _ in self.shown:
            uses.update({label for label, _, _ in record.pieces} | set(record.labels.values()))
        for text in self.foreign:
            uses.update(text.labels)
        return frozenset(label for label, number in uses.items() if number == 1)

    @cached_property
    def labels(self) -> Mapping[bytes, int]:
        """Body digest -> label of its first occurrence, as far as the label is clear."""
        found: dict[bytes, int] = {}
        for record, _ in self.shown:
            for digest, label in record.labels.items():
                found.setdefault(digest, label)
        return {digest: label for digest, label in found.items() if label in self._clear}

    @property
    def next_label(self) -> int:
        """One more than the highest label that we rendered and that is visible; 1 without any."""
        return 1 + max((record.highest for record, _ in self.shown), default=0)

    def shows_unlabelled(self, body: str) -> bool:
        """Tell whether a message that we did not render holds ``body`` as a whole (docs: rule 1b)."""
        if not self.foreign:
            return False
        keys = paragraph_keys(body)
        return any(shows_block(text.text, text.profile, body, keys) for text in self.foreign)

    def sources(self) -> list[SpanSource]:
        """Return every literal run that the messages show under a clear label, first message first."""
        runs = (source for record, text in self.shown for source in record.sources(text))
        return [source for source in runs if source.label in self._clear]


NOTHING = Visible()


class Conversations:
    """Records of rendered messages in one namespace, the least recently seen dropped first.

    ``clock`` gives seconds; a record unseen for ``seconds`` is forgotten.
    """

    def __init__(self, *, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._records: OrderedDict[bytes, MessageRecord | MessageProfile] = OrderedDict()
        self._seen: dict[bytes, float] = {}
        self._owner: dict[bytes, str] = {}
        self._owned: dict[str, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def get(self, digest: bytes) -> MessageRecord | None:
        """Return the record of a message that we rendered, or None."""
        found = self._records.get(digest)
        return found if isinstance(found, MessageRecord) else None

    def view(self, history: Iterable[HistoryMessage]) -> Visible:
        """Tell what the messages at hand show; only user and tool messages count."""
        self._forget_old()
        shown: list[tuple[MessageRecord, str]] = []
        foreign: list[ForeignText] = []
        known: list[tuple[bytes, MessageRecord | MessageProfile]] = []
        for message in history:
            if message.text is None:
                continue
            found = self._records.get(message.digest)
            if found is None:
                found = profile(message.text)
            if isinstance(found, MessageRecord):
                shown.append((found, message.text))
            else:
                foreign.append(ForeignText(message.text, found))
            known.append((message.digest, found))
        return Visible(tuple(shown), tuple(foreign), tuple(known)) if known else NOTHING

    def record(self, digest: bytes, record: MessageRecord, owner: str) -> None:
        """Remember a message that was rendered for request ``owner``."""
        self._records[digest] = record
        self.adopt(((digest, record),), owner)

    def adopt(self, known: Iterable[tuple[bytes, MessageRecord | MessageProfile]], owner: str) -> None:
        """Let ``owner``, the latest request that carries these messages, hold what is known of them."""
        now = self._clock()
        for digest, value in known:
            if digest not in self._records:
                if isinstance(value, MessageRecord):
                    continue  # released since it was seen: it does not come back
                self._records[digest] = value
            self._disown(digest)
            self._records.move_to_end(digest)
            self._seen[digest] = now
            self._owner[digest] = owner
            self._owned.setdefault(owner, {})[digest] = None
        while len(self._records) > self._limit:
            self._drop(next(iter(self._records)))

    def release(self, owner: str) -> bool:
        """Forget the records that ``owner`` holds; tell whether there were any."""
        digests = list(self._owned.get(owner, ()))
        for digest in digests:
            self._drop(digest)
        return bool(digests)

    def _forget_old(self) -> None:
        oldest_allowed = self._clock() - self._seconds
        while self._records:
            digest = next(iter(self._records))
            if self._seen[digest] > oldest_allowed:
                break
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        self._disown(digest)
        del self._records[digest]
        del self._seen[digest]

    def _disown(self, digest: bytes) -> None:
        owner = self._owner.pop(digest, None)
        if owner is not None:
            held = self._owned[owner]
            del held[digest]
            if not held:
                del self._owned[owner]

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless every record has one owner and one time."""
        held = {digest: owner for owner, digests in self._owned.items() for digest in digests}
        if held != self._owner or set(held) != set(self._records) or set(held) != set(self._seen):
            raise IntegrityError(
                f"{len(self._records)} records of messages, but {len(self._owner)} owners and {len(self._seen)} times"
            )
        if len(self._records) > self._limit:
            raise IntegrityError(f"more than {self._limit} messages are remembered")
