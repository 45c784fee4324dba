"""Two threads that keep one worker's copy of the shared state in step with the log in Redis.

The writer appends the worker's own operations. The reader joins the log (a snapshot, and what came after it) and
follows it; whatever goes wrong, it lets the engine plan alone and joins again. A log that cannot be followed is given
up for all.
"""

import logging
import threading
import time

from contextpilot_core.journal import LogState, SharedState
from contextpilot_integrations.stores.codec import decode_snapshot, encode_snapshot
from contextpilot_integrations.stores.redis_log import REFUSED, UNREACHABLE, Found, Position, RedisLog, later

_log = logging.getLogger(__name__)
_READ, _WRITE = 64, 256  # entries per command; the engine waits while as many are followed
_WAIT_MS = 250  # how long one command waits for entries: also how soon `close` and a lost log are noticed
_PAUSES = 0.05, 2.0  # seconds before the next try: at first, and at most
_END_SECONDS = 1.0  # of the time for closing, what the threads may take to end


class Exchange:
    """Runs from the beginning to `close`. A snapshot is written once in ``every`` entries."""

    def __init__(self, state: SharedState, log: RedisLog, *, every: int) -> None:
        self._state = state
        self._redis = log
        self._every = every
        self._work = threading.Event()
        self._closed = threading.Event()
        self._moved = threading.Condition()  # guards what follows, and tells of progress
        self._epoch: bytes | None = None  # None while the log is out of reach
        self._position: Position = b"0-0"
        self._sent = 0
        self._joins = 0
        self._asked = 0  # how often somebody asked to be told when the end of the log is reached
        self._end: tuple[int, bytes, Position] | None = None  # the end that was found for so many: log and position
        self._told = False  # that the log is out of reach
        self._refused = False  # operations, and that was said
        self._threads = tuple(
            threading.Thread(target=run, name=f"contextpilot-redis-{name}", daemon=True)
            for name, run in (("reader", self._run_reader), ("writer", self._run_writer))
        )
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Take note of new operations."""
        if not self._work.is_set():
            self._work.set()

    def synchronize(self, timeout: float) -> bool:
        """Wait until own operations, and all that the log holds by now, are part of the copy; False: not in time.

        Whoever calls asks nothing of Redis, which may never answer: both threads do, and tell of their progress.
        """
        with self._moved:
            self._asked += 1
            asked, last = self._asked, self._state.last
            self._work.set()
            self._moved.wait_for(lambda: self._closed.is_set() or self._reached(asked, last), timeout)
            return not self._closed.is_set() and self._reached(asked, last)

    def _reached(self, asked: int, last: int) -> bool:
        """Tell whether the copy holds own operations up to ``last``, and the log up to the end found for ``asked``."""
        if self._end is None or self._state.returned < last:
            return False
        found, epoch, end = self._end
        return found >= asked and epoch == self._epoch and not later(end, self._position)

    def close(self, timeout: float) -> bool:
        """Send what waits, unless the log is out of reach, and end the threads, all within ``timeout`` seconds.

        Returns whether both have ended. One that waits for Redis ends afterwards; the engine plans alone at once.
        """
        deadline = time.monotonic() + timeout
        if not self._told:
            self.synchronize(max(timeout / 2, timeout - _END_SECONDS))
        with self._moved:
            self._closed.set()
            self._moved.notify_all()
        self._work.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._state.detach()
        return not any(thread.is_alive() for thread in self._threads)

    # -- the reader ----------------------------------------------------------------------------------------------

    def _run_reader(self) -> None:
        first, most = _PAUSES
        pause = first
        try:
            while not self._closed.is_set():
                try:
                    if self._join():
                        pause = first
                        self._follow()
                        continue
                except UNREACHABLE as error:
                    self._say_alone(error)
                    self._leave()
                except Exception:  # noqa: BLE001  # logged; the engine plans on alone
                    _log.exception(
                        "worker %s gives its copy of the log in Redis up, and joins again", self._state.worker
                    )
                    self._state.restart()
                    self._leave()
                    pause = most
                self._closed.wait(pause)
                pause = min(2 * pause, most)
        finally:
            self._leave()

    def _join(self) -> bool:
        """Take over what the log says, from its snapshot to its end; False when that has to be tried again."""
        found = self._redis.find()
        if found is None:
            self._redis.begin(encode_snapshot(self._state.snapshot()))
            return False
        try:
            copy = LogState.restored(self._state.config, decode_snapshot(found.snapshot))
            position = self._catch_up(copy, found)
        except UNREACHABLE:
            raise
        except Exception:  # noqa: BLE001  # logged; whatever is wrong with it, it serves nobody
            _log.exception("worker %s cannot follow the log in Redis", self._state.worker)
            self._redis.give_up(found.epoch)
            return False
        if position is None:
            return False
        self._state.attach(copy)
        with self._moved:
            self._epoch, self._position = found.epoch, position
            self._sent = copy.numbers.get(self._state.worker, 0)
            self._joins += 1
            self._end = None
            self._told = False
            self._moved.notify_all()
        self._work.set()
        _log.info("worker %s follows the log %s in Redis", self._state.worker, found.epoch.decode(errors="replace"))
        return True

    def _catch_up(self, copy: LogState, found: Found) -> Position | None:
        """Let a restored copy follow the log to its end, and return where that is; None: entries were trimmed.

        Raises:
            ValueError: somebody writes under this worker's name.
        """
        position, more = found.position, True
        while more:
            batch = self._redis.read(found.epoch, position, most=_READ)
            if batch is None or self._closed.is_set():
                return None
            for entry in batch.entries:
                copy.apply(entry)
            position, more = batch.position, batch.full
        if self._state.forged(copy.numbers.items()):
            raise ValueError("the log holds operations that this worker never made")
        return position

    def _follow(self) -> None:
        """Follow the log until the end of the exchange, or until it cannot be followed further."""
        epoch, wait = self._epoch, None if self._redis.single else _WAIT_MS
        while epoch is not None and not self._closed.is_set():
            batch = self._redis.read(epoch, self._position, most=_READ, wait=wait)
            if batch is None:
                _log.warning("worker %s missed a part of the log in Redis: taking its snapshot", self._state.worker)
                return
            if self._state.forged((entry.worker, entry.number) for entry in batch.entries):
                _log.warning("somebody else writes to the log in Redis as worker %s", self._state.worker)
                self._redis.give_up(epoch)
                return
            due = bool(batch.entries) and self._state.deliver(batch.entries, every=self._every)
            with self._moved:
                self._position = batch.position
                self._moved.notify_all()
            if due:
                # Nobody else changes the copy now, so the engine need not wait for its snapshot.
                self._redis.save(epoch, encode_snapshot(self._state.log.snapshot()), batch.position)
            if wait is None and not batch.full:
                self._closed.wait(_PAUSES[0])  # the writer's turn

    def _leave(self) -> None:
        """Let the engine plan alone."""
        with self._moved:
            self._epoch = None
        self._state.detach()

    def _say_alone(self, error: Exception) -> None:
        if not self._told and not self._closed.is_set():
            why = f"{type(error).__name__}: {error}"
            _log.warning("worker %s plans alone until Redis is there again (%s)", self._state.worker, why)
        self._told = True

    # -- the writer ----------------------------------------------------------------------------------------------

    def _run_writer(self) -> None:
        first, most = _PAUSES
        pause = first
        while not self._closed.is_set():
            self._work.wait()
            self._work.clear()
            while not self._closed.is_set() and self._epoch is not None and (self._unsent() or self._unanswered()):
                if self._tried():
                    pause = first
                else:
                    self._closed.wait(pause)
                    pause = min(2 * pause, most)

    def _unsent(self) -> bool:
        return self._state.last > self._sent

    def _unanswered(self) -> bool:
        return self._asked > (0 if self._end is None else self._end[0])

    def _tried(self) -> bool:
        """Tell whether a step was done; what goes wrong is logged where the reader does not say it."""
        try:
            done = self._step()
        except REFUSED as error:
            if not self._refused:
                why = f"{type(error).__name__}: {error}"
                _log.warning("worker %s cannot share its operations, and tries again (%s)", self._state.worker, why)
            self._refused = True
            return False
        except UNREACHABLE:
            return False
        except Exception:  # noqa: BLE001  # logged; the operations are kept
            _log.exception("worker %s cannot send its operations, and tries again", self._state.worker)
            return False
        self._refused = self._refused and not done
        return done

    def _step(self) -> bool:
        """Append the next operations, and find the end of the log for those who asked for it; False: not now.

        Operations that may be there already come again, and are known by their numbers.
        """
        with self._moved:
            epoch, sent, join, asked = self._epoch, self._sent, self._joins, self._asked
        if epoch is not None and self._unsent():
            entries = self._state.own_after(sent, most=_WRITE)
            if not entries or not self._redis.append(epoch, entries):
                return False
            with self._moved:
                if join == self._joins:
                    self._sent = entries[-1].number
        end = self._redis.end(epoch) if epoch is not None and self._unanswered() else None
        with self._moved:
            if epoch is not None and end is not None:
                self._end = asked, epoch, end
                self._moved.notify_all()
        return end is not None or not self._unanswered()
