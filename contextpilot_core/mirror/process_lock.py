"""A lock for what a fork may copy at any moment: in the child it is free, and what it guards can be put right first."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from weakref import WeakSet


class ProcessLock(AbstractContextManager[None]):
    """As `threading.RLock`, and never held in a forked child by a thread that is not there.

    A child has none of its parent's other threads: one of them may have held the lock, in the middle of a change. So
    ``forked`` is called first, once, by the first that takes the lock in the child, with the lock held; its argument
    tells whether there was such a change. A fork whose child never takes the lock costs nothing.
    """

    def __init__(self, forked: Callable[[bool], object] = lambda torn: None) -> None:
        self._forked = forked
        self._lock = threading.RLock()
        self._torn: bool | None = None  # in a child that has not taken it yet: whether a thread left it held
        _LOCKS.add(self)

    def __enter__(self) -> None:
        """Take the lock."""
        self._lock.acquire()
        if self._torn is not None:
            torn, self._torn = self._torn, None
            self._forked(torn)

    def __exit__(self, *error: object) -> None:
        """Free the lock."""
        self._lock.release()

    def left(self) -> None:
        """Take note, as the child's only thread, that this is a child now."""
        whole = self._lock.acquire(blocking=False)
        if whole:  # it was free, or this very thread goes on with its change
            self._lock.release()
        else:
            self._lock = threading.RLock()
        self._torn = bool(self._torn) or not whole


_LOCKS: WeakSet[ProcessLock] = WeakSet()


def _in_child() -> None:
    for lock in _LOCKS:
        lock.left()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
