"""What the messages of a conversation show: records of the messages that we rendered, found by digest alone.

Nothing here can outlive the messages: a record is only ever used for a message that stands in the request at hand,
so a hint cannot dangle (docs: "De-duplication", rule 1). Records, and profiles of the messages that others
wrote, are bounded in number and in time; each belongs to the latest requests that carried its message and goes when the
last of them is evicted.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from contextpilot_core.dedup import MessageProfile, paragraph_keys, profile, shows_block, sources_in
from contextpilot_core.errors import IntegrityError
from contextpilot_core.intake import HistoryMessage
from contextpilot_core.types import Message, SpanSource

_LABEL_LINE = re.compile(r"^[\s>*#|-]*\[Doc (\d{1,9})\]\s*$", re.MULTILINE)
_MOST_OWNERS = 64


@dataclass(frozen=True)
class MessageRecord:
    """What one rendered message shows.

    labels: body digest -> label, for blocks that stand there literally as a whole.
    rendered: every label that stands there, whatever is left of its block.
    highest: the highest label that the message renders or points to (0: none).
    path: (digest, tokens) of the leading blocks before the first hint: their place in the prefix cache.
    pieces: (label, start, length) of every literal run in the message's text.
    """

    labels: Mapping[bytes, int]
    rendered: frozenset[int]
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
class ForeignRecord:
    """What is known of a message that we did not render, or no longer know.

    profile: finds whole blocks in its text; None where no hint may point.
    labels: numbers of what looks like our label lines, in any role and shape: a hint to one of them could be misread.
    """

    profile: MessageProfile | None
    labels: frozenset[int]


Known = MessageRecord | ForeignRecord


@dataclass(frozen=True)
class Visible:
    """What the messages of one request show, in the order of the messages."""

    shown: tuple[tuple[MessageRecord, str], ...] = ()
    foreign: tuple[tuple[ForeignRecord, str | None], ...] = ()
    known: tuple[tuple[bytes, Known], ...] = ()

    @cached_property
    def unclear(self) -> frozenset[int]:
        """Labels that stand for more than one thing, or may: no hint names one of them."""
        uses = Counter(label for record, _ in self.shown for label in record.rendered)
        foreign = [label for record, _ in self.foreign for label in record.labels]
        return frozenset(foreign).union(label for label, number in uses.items() if number > 1)

    @cached_property
    def labels(self) -> Mapping[bytes, int]:
        """Body digest -> label of its first occurrence, as far as the label is clear."""
        found: dict[bytes, int] = {}
        for record, _ in self.shown:
            for digest, label in record.labels.items():
                found.setdefault(digest, label)
        return {digest: label for digest, label in found.items() if label not in self.unclear}

    @property
    def next_label(self) -> int:
        """One more than the highest label that we rendered and that is visible; 1 without any."""
        return 1 + max((record.highest for record, _ in self.shown), default=0)

    def shows_unlabelled(self, body: str) -> bool:
        """Tell whether a message that we did not render holds ``body`` as a whole (docs: rule 1b)."""
        keys = paragraph_keys(body) if self.foreign else ()
        return any(
            text is not None and record.profile is not None and shows_block(text, record.profile, body, keys)
            for record, text in self.foreign
        )

    def sources(self) -> list[SpanSource]:
        """Return every literal run that the messages show under a clear label, first message first."""
        runs = (source for record, text in self.shown for source in record.sources(text))
        return [source for source in runs if source.label not in self.unclear]


NOTHING = Visible()


class Conversations:
    """What is known of messages in one namespace, the least recently seen dropped first.

    ``clock`` gives seconds; what was unseen for ``seconds`` is forgotten. Every entry is held by the latest requests
    that carried its message, and goes with the last of them.
    """

    def __init__(self, *, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._seen: dict[bytes, float] = {}
        self._owners: dict[bytes, dict[str, None]] = {}
        self._owned: dict[str, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: bytes) -> MessageRecord | None:
        """Return the record of a message that we rendered, or None."""
        found = self._known.get(key)
        return found if isinstance(found, MessageRecord) else None

    def view(self, history: Iterable[HistoryMessage]) -> Visible:
        """Tell what the messages at hand show; hints may point to user and tool messages only."""
        self._forget_old()
        shown: list[tuple[MessageRecord, str]] = []
        foreign: list[tuple[ForeignRecord, str | None]] = []
        known: list[tuple[bytes, Known]] = []
        for message in history:
            found = self._known.get(message.key)
            if found is None:
                found = _foreign(message)
            if isinstance(found, MessageRecord):
                shown.append((found, message.text or ""))
            else:
                foreign.append((found, message.text))
            known.append((message.key, found))
        return Visible(tuple(shown), tuple(foreign), tuple(known)) if known else NOTHING

    def record(self, key: bytes, record: MessageRecord, owner: str) -> None:
        """Remember a message that was rendered for request ``owner``."""
        self._known[key] = record
        self.adopt(((key, record),), owner)

    def adopt(self, known: Iterable[tuple[bytes, Known]], owner: str) -> None:
        """Let ``owner``, a request that carries these messages, hold what is known of them."""
        now = self._clock()
        for key, value in known:
            if key not in self._known:
                if isinstance(value, MessageRecord):
                    continue  # released since it was seen: it does not come back
                self._known[key] = value
            self._known.move_to_end(key)
            self._seen[key] = now
            owners = self._owners.setdefault(key, {})
            owners[owner] = None
            self._owned.setdefault(owner, {})[key] = None
            if len(owners) > _MOST_OWNERS:
                self._disown(key, next(iter(owners)))
        while len(self._known) > self._limit:
            self._drop(next(iter(self._known)))

    def release(self, owner: str) -> bool:
        """Let ``owner`` hold nothing; tell whether it held anything. What nobody holds any more is forgotten."""
        keys = list(self._owned.get(owner, ()))
        for key in keys:
            self._disown(key, owner)
            if not self._owners[key]:
                self._drop(key)
        return bool(keys)

    def _forget_old(self) -> None:
        oldest_allowed = self._clock() - self._seconds
        while self._known:
            key = next(iter(self._known))
            if self._seen[key] > oldest_allowed:
                break
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        for owner in list(self._owners[key]):
            self._disown(key, owner)
        del self._known[key], self._seen[key], self._owners[key]

    def _disown(self, key: bytes, owner: str) -> None:
        del self._owners[key][owner]
        held = self._owned[owner]
        del held[key]
        if not held:
            del self._owned[owner]

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless every entry has a time and an owner, and owners agree with what they hold."""
        pairs = {(key, owner) for key, owners in self._owners.items() for owner in owners}
        held = {(key, owner) for owner, keys in self._owned.items() for key in keys}
        if pairs != held or not set(self._known) == set(self._seen) == {key for key, _ in pairs}:
            raise IntegrityError(
                f"{len(self._known)} messages are known, {len(self._owners)} have owners, {len(self._seen)} have times"
            )
        if len(self._known) > self._limit:
            raise IntegrityError(f"more than {self._limit} messages are remembered")


def _foreign(message: HistoryMessage) -> ForeignRecord:
    """Read a message once: its paragraphs, if a hint may point there, and what could be mistaken for our labels."""
    labels = {int(number) for text in _texts(message.message) for number in _LABEL_LINE.findall(text)}
    return ForeignRecord(None if message.text is None else profile(message.text), frozenset(labels))


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, (list, tuple)) else (content,):
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
