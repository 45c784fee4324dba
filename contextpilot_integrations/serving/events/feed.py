"""From the batches of one publisher to the mirror: order, gaps, restarts. No sockets here."""

import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from contextpilot_core import KVMirror
from contextpilot_core.mirror import AllBlocksCleared
from contextpilot_integrations.serving.events.codec import EventDecoder

_log = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Batches that are recognised when they come again: as many as engines keep for replay."""

Batch = tuple[int, bytes]
"""Sequence number and payload."""

Ask = Callable[[int], list[Batch] | None]
"""Asks the engine for its batches from a sequence number on; None: it did not answer."""


@dataclass(frozen=True, kw_only=True)
class EventStatus:
    """Counts of one event stream since its start, and whether the mirror may be trusted for it."""

    live: bool
    reason: str
    last_sequence: int
    batches: int
    gaps: int
    replays: int
    restarts: int
    malformed: int
    unknown_events: int


class _Place(Enum):
    NEXT = auto()
    SEEN = auto()
    GAP = auto()


class _Order:
    """Where a batch stands in the stream of a publisher, which counts from 0 whenever it starts."""

    def __init__(self) -> None:
        self.last = -1
        self._seen: OrderedDict[int, bytes] = OrderedDict()

    def place(self, sequence: int, payload: bytes) -> _Place:
        # The payload holds the time of publishing: equal bytes come from the same run of the engine.
        if self._seen.get(sequence) == _digest(payload):
            return _Place.SEEN
        return _Place.NEXT if sequence in (0, self.last + 1) else _Place.GAP

    def accept(self, sequence: int, payload: bytes) -> None:
        self.last = sequence
        self._seen[sequence] = _digest(payload)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


class EventFeed:
    """Feeds one rank of a mirror, which is suspended whenever it is not known to be right.

    After a loss that no replay could fill, the rank is cleared. It is followed on, which gives a part of the truth,
    but it counts as right only after `AllBlocksCleared`, a restart of the engine (sequence 0) or a full replay.
    """

    def __init__(self, mirror: KVMirror, decoder: EventDecoder, *, rank: int, name: str) -> None:
        """Suspend ``mirror`` until the first batch has come. ``name`` stands in its suspensions and in the log."""
        self._mirror, self._decoder, self._rank, self._name = mirror, decoder, rank, name
        self._order = _Order()
        self._published = -math.inf
        self._right = False
        self._away = False
        self._hopeless = False  # no replay could help
        self._reason = ""
        self._batches = self._gaps = self._replays = self._restarts = self._malformed = self._unknown = 0
        self._suspend("no batch has come yet")

    @property
    def status(self) -> EventStatus:
        """The counts."""
        reason = self._reason or self._mirror.suspensions.get(self._name, "")  # the mirror notices a fork
        return EventStatus(
            live=not reason,
            reason=reason,
            last_sequence=self._order.last,
            batches=self._batches,
            gaps=self._gaps,
            replays=self._replays,
            restarts=self._restarts,
            malformed=self._malformed,
            unknown_events=self._unknown,
        )

    @property
    def recoverable(self) -> bool:
        """Whether asking for a replay could make the mirror right."""
        return not (self._right or self._hopeless)

    def take(self, sequence: int, payload: bytes, ask: Ask | None = None) -> None:
        """Follow a live batch; what is missing before it is asked for, or lost."""
        if not self._receive(sequence, payload):
            if sequence != self._order.last + 1:
                self._gaps += 1
                self._suspend(f"batch {sequence} came, {self._order.last + 1} was expected")
            if ask is None or not self.recover(ask) or not self._receive(sequence, payload):
                self._lose(f"the batches before {sequence} are lost")
                self._accept(sequence, payload)
        self._settle()

    def recover(self, ask: Ask) -> bool:
        """Catch up with the engine by replay. Returns whether the place of its next batch is known."""
        self._replays += 1
        # The batch that was followed last is asked for again: it proves that the engine is still the same run.
        answers = ask(self._order.last) if self._right and self._order.last >= 0 else []
        if answers is None:
            return False
        if not answers or self._order.place(*answers[0]) is not _Place.SEEN:
            answers = ask(0)
            if answers is None:
                return False
            if answers and answers[0][0] != 0:
                self._hopeless = True
                self._lose(f"the engine's replay starts at batch {answers[0][0]} (its buffer_steps are too few)")
                return False
            self._begin(restarted=self._right)
        self._away = False
        while True:  # the engine drops answers that it cannot send at once: until there is nothing new
            before = self._order.last
            whole = all(self._receive(*batch) for batch in answers)
            if self._order.last == before:
                break
            answers = ask(self._order.last)
            if answers is None:
                return False
        if whole:
            self._settle()
        return whole

    def away(self) -> None:
        """The connection is gone: whatever comes next may be from another run of the engine."""
        self._away = True
        self._suspend("the engine is not connected")

    def stray(self) -> None:
        """A message came that is no batch at all."""
        self._malformed += 1

    def end(self, reason: str) -> None:
        """Nothing will be followed any more."""
        self._mirror.clear(self._rank)
        self._suspend(reason)

    def _receive(self, sequence: int, payload: bytes) -> bool:
        """Take a batch whose place is certain; False: it needs a replay."""
        place = self._order.place(sequence, payload)
        if place is _Place.SEEN:
            return True
        if place is _Place.GAP or (self._away and sequence):
            return False
        self._accept(sequence, payload)
        return True

    def _accept(self, sequence: int, payload: bytes) -> None:
        batch = self._decoder.decode(payload)
        if sequence == 0:
            if batch is not None and batch.time <= self._published and not self._away:
                self._lose("batch 0 came late")  # an engine that starts again is later than what it sent before
                return
            self._begin(restarted=True)
        self._away = False
        self._batches += 1
        if batch is None:
            self._malformed += 1
            self._hopeless = True
            self._lose(f"batch {sequence} could not be decoded")
        else:
            self._published = batch.time
            self._unknown += batch.unknown
            self._mirror.apply(batch.events, self._rank)
            if any(isinstance(event, AllBlocksCleared) for event in batch.events):
                self._right = True
        self._order.accept(sequence, payload)

    def _begin(self, *, restarted: bool) -> None:
        """Follow a run of the engine from its beginning."""
        if restarted and self._order.last >= 0:
            self._restarts += 1
            _log.info("%s: the engine has started again; its cache is empty", self._name)
        self._order = _Order()
        self._published = -math.inf
        self._mirror.clear(self._rank)
        self._right, self._hopeless = True, False

    def _lose(self, reason: str) -> None:
        self._mirror.clear(self._rank)
        self._right = False
        self._suspend(reason)
        _log.warning("%s: %s; the view is empty until the engine clears its cache or starts again", self._name, reason)

    def _suspend(self, reason: str) -> None:
        self._reason = reason
        self._mirror.suspend(reason, source=self._name)

    def _settle(self) -> None:
        """All that has come is followed."""
        if self._right and not self._away and self._reason:
            _log.info(
                "%s: the view is right up to batch %d (it was not: %s)", self._name, self._order.last, self._reason
            )
            self._reason = ""
            self._mirror.resume(source=self._name)


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
