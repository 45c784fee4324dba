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


@dataclass
class _Seat:
    """Who has a session, and who waits for it."""

    owner: Any
    waiting: deque["Future[None]"] = field(default_factory=deque)


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
            RequestError: this thread holds it already, by a stream that has not ended.
        """
        if session_id is None:
            yield _nothing
            return
        key = namespace, session_id
        turn = self._enter(key)
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
        turn = self._enter(key)
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

    def _enter(self, key: Key) -> "Future[None]":
        """Return what is done as soon as it is the caller's turn."""
        turn: Future[None] = Future()
        with self._guard:
            seat = self._seats.get(key)
            if seat is None:
                self._seats[key] = _Seat(_caller())
                turn.set_result(None)
            elif seat.owner == _caller():
                raise RequestError(
                    f"session_id={key[1]!r} has an answer that is still being streamed here, and waiting for it would "
                    "never end; read it to its end or close it first"
                )
            else:
                seat.waiting.append(turn)
        return turn

    def _give_up(self, key: Key, turn: "Future[None]") -> None:
        """End the waiting of a caller that was interrupted; the session may have been handed over to it already."""
        if not turn.cancel():
            self._leave(key)

    def _leave(self, key: Key) -> None:
        with self._guard:
            seat = self._seats[key]
            seat.owner = None
            while seat.waiting:
                following = seat.waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            del self._seats[key]


def _nothing() -> None:
    pass


def _caller() -> Any:
    """Return the running task, or else the number of this thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else task
