"""A lock for what a fork may copy at any moment: in the child it is free, and what it guards can be put right first."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class ProcessLock(AbstractContextManager[None]):
    """As `threading.Lock` in one process. A forked child has a lock of its own.

    A child has none of its parent's other threads: one of them may have held the parent's lock, in the middle of a
    change. So ``forked`` is called first, once, by the first that takes the child's lock.
    """

    def __init__(self, forked: Callable[[], None]) -> None:
        self._forked = forked
        self._process = os.getpid()
        self._locks = {self._process: threading.Lock()}

    def __enter__(self) -> None:
        """Take the lock of this process."""
        process = os.getpid()
        lock = self._locks.get(process) or self._locks.setdefault(process, threading.Lock())
        lock.acquire()
        if process != self._process:
            self._process = process
            self._forked()

    def __exit__(self, *error: object) -> None:
        """Free the lock."""
        self._locks[os.getpid()].release()
