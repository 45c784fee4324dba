"""One turn at a time per session, for threads and tasks alike, in the order in which they came."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from contextpilot_core import RequestError


@dataclass
class _Seat:
    """Who has a session, and who waits for it."""

    owner: Any
    waiting: deque["Future[None]"] = field(default_factory=deque)


class TurnLocks:
    """The sessions whose turns are under way. A session is known here only as long as someone has it."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}
        self._guard = threading.Lock()

    @contextmanager
    def hold(self, session_id: str | None) -> Iterator[None]:
        """Hold a session for one turn of this thread; None is nobody's.

        Raises:
            RequestError: this thread holds it already, by a stream that has not ended.
        """
        if session_id is None:
            yield
            return
        turn = self._enter(session_id)
        try:
            turn.result()
        except BaseException:
            self._give_up(session_id, turn)
            raise
        self.keep(session_id)
        try:
            yield
        finally:
            self._leave(session_id)

    @asynccontextmanager
    async def ahold(self, session_id: str | None) -> AsyncIterator[None]:
        """Hold a session for one turn of this task. Raises as `hold`."""
        if session_id is None:
            yield
            return
        turn = self._enter(session_id)
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            self._give_up(session_id, turn)
            raise
        self.keep(session_id)
        try:
            yield
        finally:
            self._leave(session_id)

    def keep(self, session_id: str | None) -> None:
        """Note that the caller has the session now: a stream may be read by another thread than began it."""
        if session_id is not None:
            with self._guard:
                self._seats[session_id].owner = _caller()

    def _enter(self, session_id: str) -> "Future[None]":
        """Return what is done as soon as it is the caller's turn."""
        turn: Future[None] = Future()
        with self._guard:
            seat = self._seats.get(session_id)
            if seat is None:
                self._seats[session_id] = _Seat(_caller())
                turn.set_result(None)
            elif seat.owner == _caller():
                raise RequestError(
                    f"session_id={session_id!r} has an answer that is still being streamed here, and waiting for it "
                    "would never end; read it to its end or close it first"
                )
            else:
                seat.waiting.append(turn)
        return turn

    def _give_up(self, session_id: str, turn: "Future[None]") -> None:
        """End the waiting of a caller that was interrupted; the session may have been handed over to it already."""
        if not turn.cancel():
            self._leave(session_id)

    def _leave(self, session_id: str) -> None:
        with self._guard:
            seat = self._seats[session_id]
            seat.owner = None
            while seat.waiting:
                following = seat.waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            del self._seats[session_id]


def _caller() -> Any:
    """Return the running task, or else the number of this thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else task
