"""One worker's copy of the shared state: sends its numbered operations, applies the log in order.

While the log is out of reach, the engine plans as one that is alone: its operations change its copy of the shared
state at once. When the log is there again, the copy gives way to what the log says, and the operations that the log
lacks are sent.
"""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from contextpilot_core.cache import BlockTable, CacheView
from contextpilot_core.config import EngineConfig
from contextpilot_core.journal.log_state import LoggedNamespace, LogState
from contextpilot_core.journal.operations import (
    Committed,
    Entry,
    Operation,
    Recorded,
    Released,
    Rendered,
    Reset,
    Snapshot,
)
from contextpilot_core.journal.view import ReplicatedView
from contextpilot_core.prompt import MessageRecord

_log = logging.getLogger(__name__)
_MOST_WAITING = 10_000
"""Own operations that may wait for the log; the oldest ones beyond are given up."""
_AT_ONCE = 64
"""Own operations that are worked on while the engine waits."""
_KEPT = 1_000
"""Own operations that are kept after they came back: a log that lost them gets them again."""


@runtime_checkable
class Journal(Protocol):
    """The way to a log that several workers share; one engine's."""

    @property
    def seal(self) -> Callable[[bytes], bytes]:
        """What turns a digest into the form in which it is shared, 16 bytes; the same in all workers."""

    def open(self, state: "SharedState") -> None:
        """Begin to exchange entries between ``state`` and the log; returns at once."""

    def wake(self) -> None:
        """Take note that ``state`` has new operations; neither waits nor raises."""


class Followers(Protocol):
    """Who has to follow what happened elsewhere; called with the lock held."""

    def cut(self, namespace: str, request_ids: Sequence[str]) -> None:
        """The last blocks of requests left the shared state."""

    def released(self, namespace: str, request_id: str) -> None:
        """Another worker released a request."""

    def recorded(self, recorded: Recorded) -> None:
        """Another worker knows the KV blocks of a live request."""

    def forgotten(self, namespace: str | None) -> None:
        """Another worker forgot a namespace, or all (None)."""

    def replaced(self) -> None:
        """The shared state is another one now."""


class SharedState:
    """One worker's copy of the shared state, and its own operations. ``lock`` is the engine's, and reentrant.

    Others only read ``log``, ``last`` and ``returned``.
    """

    def __init__(
        self, config: EngineConfig, journal: Journal, lock: AbstractContextManager[object], followers: Followers
    ) -> None:
        self.worker = secrets.token_hex(4)
        self.config = config
        self._journal = journal
        self._lock = lock
        self._followers = followers
        # The present copy. While it is attached only `deliver` and `attach` change it, and planning reads on.
        self.log = LogState(config)
        self._views: dict[str, ReplicatedView] = {}
        self._own: OrderedDict[int, Entry] = OrderedDict()  # by number, without gaps
        self.last = 0  # number of the latest own operation
        self.returned = 0  # number of the latest one that came back from the log
        self._resets: dict[int, str | None] = {}  # by number: own resets that have not come back
        self._attached = False
        self._overfull = False  # that operations are given up was said

    # -- for the engine, which holds the lock --------------------------------------------------------------------

    def view(self, namespace: str, blocks: BlockTable) -> ReplicatedView:
        """Return a new view of a namespace; it takes the place of an earlier one."""
        capacity = self.config.of(namespace).cache_tokens
        overlay = CacheView(blocks, capacity=capacity, max_requests=self.config.max_requests)
        view = self._views[namespace] = ReplicatedView(namespace, blocks, overlay, self)
        return view

    def leave(self, namespace: str) -> None:
        """Forget the view of a namespace that is not used here any more; the log keeps its part."""
        self._views.pop(namespace, None)

    def records(self, namespace: str) -> "ReplicatedRecords":
        """Return what the workers know of the messages of a namespace."""
        return ReplicatedRecords(namespace, self)

    @property
    def namespaces(self) -> Mapping[str, LoggedNamespace]:
        """The log's part of every namespace."""
        return self.log.namespaces

    def logged(self, namespace: str) -> LoggedNamespace | None:
        """Return the log's part of a namespace, None when it holds nothing of it, or will not after an own reset."""
        if self._attached and self._resets and any(name in (None, namespace) for name in self._resets.values()):
            return None
        return self.log.namespaces.get(namespace)

    def record(self, operation: Operation) -> int:
        """Number an operation and keep it for the log."""
        number = self.last + 1
        entry = self._own[number] = Entry(self.worker, number, operation, self.log.time)
        self.last = number  # after it is kept: a fork may come in between
        if isinstance(operation, Reset):
            self._resets[self.last] = operation.namespace
        self._forget_oldest()
        if not self._attached:
            self._follow(entry)
        self._journal.wake()
        return entry.number

    def tell(self, news: Recorded | None) -> None:
        """Send what the others should know now; while the log is out of reach they never will.

        News is not stored: a worker that joins later gets only what follows.
        """
        if self._attached and news is not None:
            self.record(news)

    # -- for the journal -----------------------------------------------------------------------------------------

    def own_after(self, number: int, *, most: int) -> list[Entry]:
        """Return up to ``most`` own operations after ``number``, as far as they are still kept, oldest first."""
        with self._lock:
            start = max(number + 1, next(iter(self._own), 1))
            return [self._own[n] for n in range(start, min(self.last, start + most - 1) + 1)]

    def deliver(self, entries: Iterable[Entry], *, every: int) -> bool:
        """Apply entries; True when an own one is a multiple of ``every`` in the log, which picks exactly one worker."""
        due = False
        with self._lock:
            for entry in entries:
                new = self._follow(entry)
                if entry.worker == self.worker:
                    due = due or (new and self.log.entries % every == 0)
                    self._return(max(self.returned, entry.number))
        return due

    def forged(self, numbers: Iterable[tuple[str, int]]) -> bool:
        """Tell whether one of (worker, number) names an operation of this worker that it never made."""
        return any(worker == self.worker and number > self.last for worker, number in numbers)

    def detach(self) -> None:
        """Plan alone from now on: the log is out of reach."""
        if self._attached:
            number, last = self.returned, self.last
            while number < last:  # the engine plans in between
                number = self._follow_own(number, most=_AT_ONCE)
            with self._lock:
                self._follow_own(number, most=_MOST_WAITING)
                self._attached = False

    def restart(self) -> None:
        """Plan alone from now on, and trust nothing of the copy: a new one holds the own operations that are kept."""
        with self._lock:
            self._attached = False
            self.log = LogState(self.config)
            self._followers.replaced()
            self._follow_own(0, most=_MOST_WAITING)

    def attach(self, log: LogState) -> None:
        """Let ``log``, which the log's entries led to, take the place of the present copy."""
        with self._lock:
            self.log = log
            self._attached = True
            number = log.numbers.get(self.worker, 0)
            self.returned = min(self.returned, number)
            lost = next(iter(self._own), number + 1) - number - 1
            if lost > 0:
                _log.warning("%d operations of worker %s are not in the log: too many to be kept", lost, self.worker)
            self._followers.replaced()
        while self.returned < number:
            with self._lock:
                self._return(min(number, self.returned + _AT_ONCE))

    def snapshot(self) -> Snapshot:
        """Return the present copy as values."""
        with self._lock:
            return self.log.snapshot()

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the copy is sound."""
        with self._lock:
            self.log.check_integrity()

    # ------------------------------------------------------------------------------------------------------------

    def _follow(self, entry: Entry) -> bool:
        """Let the copy and the engine follow an entry; False when it came before."""
        cut = self.log.apply(entry)
        if cut is None:
            return False
        operation = entry.operation
        if isinstance(operation, Reset):
            if entry.worker != self.worker:
                self._followers.forgotten(operation.namespace)
        elif isinstance(operation, Released) and entry.worker != self.worker:
            self._followers.released(operation.namespace, operation.request_id)
        elif isinstance(operation, Recorded) and entry.worker != self.worker:
            self._follow_recorded(operation)
        elif cut:
            self._followers.cut(operation.namespace, cut)
        return True

    def _follow_own(self, number: int, *, most: int) -> int:
        """Follow up to ``most`` own operations after ``number``: the number of the last one."""
        with self._lock:
            for entry in self.own_after(number, most=most):
                self._follow(entry)
                number = entry.number
            return number

    def _follow_recorded(self, recorded: Recorded) -> None:
        logged = self.logged(recorded.namespace)
        if logged is not None and logged.view.holds(recorded.request_id):  # else it was released, here or by a reset
            self._followers.recorded(recorded)

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._own))
        while oldest <= self.returned - _KEPT:
            del self._own[oldest]
            oldest += 1
        if len(self._own) > _MOST_WAITING:
            self._settle(self._own.pop(oldest))
            if not self._overfull:
                _log.warning("the log does not take the operations of worker %s: the oldest are given up", self.worker)
            self._overfull = True
        elif len(self._own) < _MOST_WAITING:
            self._overfull = False

    def _return(self, number: int) -> None:
        """Take note that own operations up to ``number`` are part of the copy."""
        for earlier in range(self.returned + 1, number + 1):
            if earlier in self._own:
                self._settle(self._own[earlier])
        self.returned = number

    def _settle(self, entry: Entry) -> None:
        """Wait no longer for an own operation."""
        operation = entry.operation
        if isinstance(operation, Reset):
            self._resets.pop(entry.number, None)
        elif operation.request_id is not None and operation.namespace in self._views:
            self._views[operation.namespace].delivered(entry.number, operation.request_id)


class ReplicatedRecords:
    """Implements `SharedRecords` for one namespace."""

    def __init__(self, namespace: str, state: SharedState) -> None:
        self._namespace = namespace
        self._state = state

    def get(self, key: bytes) -> MessageRecord | None:
        """Return the record of a message that a worker rendered, or None."""
        logged = self._state.logged(self._namespace)
        return None if logged is None else logged.records.get(key)

    def rendered(self, key: bytes, record: MessageRecord, owner: str) -> None:
        """Send the record to the log."""
        self._state.record(Rendered(self._namespace, owner, key, record))

    def held(self, keys: Sequence[bytes], owner: str) -> None:
        """Send to the log that a request holds what is known of messages."""
        self._state.record(Committed(self._namespace, owner, tuple(keys)))
