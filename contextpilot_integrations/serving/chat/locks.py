"""One turn at a time per session, for threads and tasks alike, in the order in which they came."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from contextpilot_core import RequestError
from contextpilot_core.mirror import ProcessLock

Key = tuple[str, str]
"""A session: its namespace, and its id."""

Caller = tuple[Any, int]
"""The running task, None outside of one, and the number of its thread."""

_LOOKS, _PAUSE = 20, 0.01  # seconds; for as long a stream of this thread may be taken over by another one
_ROUNDS = 1_000  # of the event loop, in which it closes a stream that was dropped half read


class Held:
    """A session as one turn has it: whoever reads its answer now, and whether the session was reset meanwhile."""

    def __init__(self, owner: Caller) -> None:
        self.owner, self.is_current = owner, True

    def keep(self) -> None:
        """Note that the caller has the session now: a stream may be read by another thread or task than began it."""
        self.owner = _caller()

    def void(self) -> None:
        """Note that the session was reset: this turn ends as it likes, and is not recorded."""
        self.is_current = False

    def record(self, save: Callable[[], object], clear: Callable[[], object]) -> None:
        """Save the turn, unless the session was reset since it began; ``clear`` what is saved while it is reset.

        Whoever resets a session calls `void` first, then clears it: so an old turn never comes back.
        """
        if self.is_current:
            save()
            if not self.is_current:
                clear()

    async def arecord(self, save: Callable[[], Awaitable[object]], clear: Callable[[], Awaitable[object]]) -> None:
        """As `record`."""
        if self.is_current:
            await save()
            if not self.is_current:
                await clear()

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody can end this turn any more: its event loop is gone."""
        task, _ = self.owner
        return task is not None and task.get_loop().is_closed()


@dataclass
class _Seat:
    """Who has a session, and who waits for it."""

    held: Held
    waiting: deque[tuple["Future[Held]", Caller]] = field(default_factory=deque)


class TurnLocks:
    """The sessions whose turns are under way. A session is known here only as long as someone has it."""

    def __init__(self) -> None:
        self._seats: dict[Key, _Seat] = {}
        self._guard = ProcessLock(lambda torn: self._seats.clear())  # those who had them stayed in the parent

    def is_held(self, key: Key) -> bool:
        """Tell whether a turn of a session is under way."""
        return key in self._seats

    def void(self, session_id: str, namespace: str = "default") -> None:
        """Let the turn of a session that is under way, if there is one, be its last that is not recorded."""
        with self._guard:
            if (seat := self._seats.get((namespace, session_id))) is not None:
                seat.held.void()

    @contextmanager
    def hold(self, session_id: str | None, namespace: str = "default") -> Iterator[Held]:
        """Hold a session for one turn of this thread; None is nobody's.

        Raises:
            RequestError: waiting would never end: a stream that was begun here has the session, or a task that cannot
                go on while this thread waits has it, or comes before.
        """
        if session_id is None:
            yield Held(_caller())
            return
        key = namespace, session_id
        looks = 1 if _caller()[0] is not None else _LOOKS  # in an event loop nothing changes while this waits
        while (turn := self._enter(key, blocks=True)) is None:
            looks -= 1
            if not looks:
                raise _endless(session_id)
            time.sleep(_PAUSE)
        with self._had(key, turn):
            held = turn.result()
            held.keep()
            yield held

    @asynccontextmanager
    async def ahold(self, session_id: str | None, namespace: str = "default") -> AsyncIterator[Held]:
        """Hold a session for one turn of this task. Raises as `hold`."""
        if session_id is None:
            yield Held(_caller())
            return
        key, rounds = (namespace, session_id), _ROUNDS
        while (turn := self._enter(key, blocks=False)) is None:
            rounds -= 1
            if not rounds:
                raise _endless(session_id)
            await asyncio.sleep(0)
        with self._had(key, turn):
            held = await asyncio.wrap_future(turn)
            held.keep()
            yield held

    def _enter(self, key: Key, *, blocks: bool) -> "Future[Held] | None":
        """Return what is done as soon as it is the caller's turn, or None where that would never be.

        ``blocks``: until then the caller's thread does nothing.
        """
        turn, me = Future[Held](), _caller()
        with self._guard:
            seat = self._seats.get(key)
            if seat is not None and seat.held.is_orphaned:
                seat = self._pass_on(key, seat)
            if seat is None:
                self._seats[key] = _Seat(Held(me))
                turn.set_result(self._seats[key].held)
                return turn
            owner = seat.held.owner
            ahead = [owner, *[caller for other, caller in seat.waiting if not other.cancelled()]]
            if me[1] in [thread for _, thread in ahead] if blocks else _stands_still(owner, me):
                return None
            seat.waiting.append((turn, me))
        return turn

    @contextmanager
    def _had(self, key: Key, turn: "Future[Held]") -> Iterator[None]:
        """Leave the session at the end; a caller that is interrupted while it waits may have been given it, or not."""
        try:
            yield
        finally:
            if not turn.cancel():
                with self._guard:
                    seat = self._seats.get(key)
                    if seat is not None and seat.held is turn.result():
                        self._pass_on(key, seat)

    def _pass_on(self, key: Key, seat: _Seat) -> _Seat | None:
        """Give the session to the next who waits; the guard is held. Returns None when nobody does."""
        while seat.waiting:
            following, caller = seat.waiting.popleft()
            if following.set_running_or_notify_cancel():
                seat.held = Held(caller)
                following.set_result(seat.held)
                return seat
        del self._seats[key]
        return None


def _stands_still(owner: Caller, me: Caller) -> bool:
    """Tell whether the owner cannot go on while this task waits: it is this task, or under or beside its loop."""
    (task, thread), (mine, here) = owner, me
    return thread == here and (task is None or task is mine or task.get_loop() is not mine.get_loop())


def _endless(session_id: str) -> RequestError:
    return RequestError(
        f"session_id={session_id!r} has an answer that is still being streamed or awaited here, and waiting "
        "for it would never end; read it to its end or close it first, and do not block an event loop"
    )


def _caller() -> Caller:
    try:
        return asyncio.current_task(), threading.get_ident()
    except RuntimeError:
        return None, threading.get_ident()
