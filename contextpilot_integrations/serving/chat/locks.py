"""One turn at a time per session, for threads and tasks alike, in the order in which they came."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contextpilot_core import RequestError

Key = tuple[str, str]
"""A session: its namespace, and its id."""

Keep = Callable[[], None]
"""Notes that the caller has the session now: a stream may be read by another thread than began it."""

Caller = tuple[Any, int]
"""The running task, None outside of one, and the number of its thread."""


@dataclass
class _Seat:
    """Who has a session, and who waits for it."""

    owner: Caller
    waiting: deque[tuple["Future[None]", Caller]] = field(default_factory=deque)


class TurnLocks:
    """The sessions whose turns are under way. A session is known here only as long as someone has it."""

    def __init__(self) -> None:
        self._seats: dict[Key, _Seat] = {}
        self._guard = threading.Lock()

    def is_held(self, key: Key) -> bool:
        """Tell whether a turn of a session is under way."""
        return key in self._seats

    @contextmanager
    def hold(self, session_id: str | None, namespace: str = "default") -> Iterator[Keep]:
        """Hold a session for one turn of this thread; None is nobody's.

        Raises:
            RequestError: waiting would never end: a stream that was begun here has the session, or a task that cannot
                go on while this thread waits has it, or comes before.
        """
        if session_id is None:
            yield _nothing
            return
        key = namespace, session_id
        turn = self._enter(key, blocks=True)
        try:
            turn.result()
        except BaseException:
            self._give_up(key, turn)
            raise
        try:
            yield self._keep(key)
        finally:
            self._leave(key)

    @asynccontextmanager
    async def ahold(self, session_id: str | None, namespace: str = "default") -> AsyncIterator[Keep]:
        """Hold a session for one turn of this task. Raises as `hold`."""
        if session_id is None:
            yield _nothing
            return
        key = namespace, session_id
        turn = self._enter(key, blocks=False)
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            self._give_up(key, turn)
            raise
        try:
            yield self._keep(key)
        finally:
            self._leave(key)

    def _keep(self, key: Key) -> Keep:
        self._own(key)
        return partial(self._own, key)

    def _own(self, key: Key) -> None:
        with self._guard:
            self._seats[key].owner = _caller()

    def _enter(self, key: Key, *, blocks: bool) -> "Future[None]":
        """Return what is done as soon as it is the caller's turn; ``blocks``: until then its thread does nothing."""
        turn, me = Future[None](), _caller()
        with self._guard:
            seat = self._seats.setdefault(key, _Seat(me))
            if seat.owner is me:
                turn.set_result(None)
                return turn
            ahead = [seat.owner, *[caller for other, caller in seat.waiting if not other.cancelled()]]
            if me[1] in [thread for _, thread in ahead] if blocks else seat.owner in (me, (None, me[1])):
                raise RequestError(
                    f"session_id={key[1]!r} has an answer that is still being streamed or awaited here, and waiting "
                    "for it would never end; read it to its end or close it first, and do not block an event loop"
                )
            seat.waiting.append((turn, me))
        return turn

    def _give_up(self, key: Key, turn: "Future[None]") -> None:
        """End the waiting of a caller that was interrupted; the session may have been handed over to it already."""
        if not turn.cancel():
            self._leave(key)

    def _leave(self, key: Key) -> None:
        with self._guard:
            seat = self._seats[key]
            while seat.waiting:
                following, seat.owner = seat.waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            del self._seats[key]


def _nothing() -> None:
    pass


def _caller() -> Caller:
    try:
        return asyncio.current_task(), threading.get_ident()
    except RuntimeError:
        return None, threading.get_ident()
