"""Several application processes share one view of one serving engine's prefix cache through Redis (docs: "Workers").

Every process has an engine with a copy of the shared state, so planning asks nobody. Two threads per process keep the
copy in step: one appends what was planned here to a log (a Redis stream), the other follows the log.
"""

import hashlib
import logging
import os
import threading
import time
from types import TracebackType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from contextpilot_core.errors import ConfigError, IntegrityError
from contextpilot_core.replica import LogState, rules
from contextpilot_core.shared import SharedState
from contextpilot_integrations.stores.codec import VERSION, decode_snapshot, encode_snapshot
from contextpilot_integrations.stores.redis_log import Position, RedisLog, later

_log = logging.getLogger(__name__)
_SHORTEST_SECRET = 16
_DIGEST_BYTES = 16
_SOCKET_SECONDS = 5.0
_WAIT_MS = 250  # how long one command waits for entries: also how soon `close` and a lost log are noticed
_READ, _WRITE = 64, 256  # entries per command; the engine waits while as many are followed
_PAUSES = 0.05, 2.0  # seconds before the next try: at first, and at most


class RedisStore:
    """The journal of one engine.

        store = RedisStore("redis://localhost:6379", secret=os.environ["CONTEXTPILOT_SECRET"])
        engine = ReuseEngine(config, journal=store)

    Make both in the process that uses them, after any fork, and with the same ``secret`` and the same bounds in the
    configuration everywhere: other ones share another view. In Redis stand names of namespaces and requests, numbers,
    and digests that nobody without the secret can tell from chance; never a text. Who may write to this Redis may
    spoil the view; give it a password of its own.

    While Redis is out of reach the engine plans on alone; afterwards the processes agree again, and nothing is lost
    up to 10,000 operations of a process. If Redis loses data, the processes put back what they know. A process that
    ends without `close` may leave its last operations unsent; plans that it had in flight count as sent, and age like
    any other.
    """

    def __init__(
        self,
        server: Any,
        *,
        secret: str | bytes,
        key: str = "contextpilot",
        snapshot_every: int = 2_000,
    ) -> None:
        """Prepare; nothing is sent before an engine is there.

        Args:
            server: a URL, or a client that answers in bytes (``decode_responses=False``).
            secret: at least 16 bytes, the same in all processes; it is not sent.
            key: begins the name of every key in Redis.
            snapshot_every: a snapshot is written, and the log trimmed, once in so many entries.

        Raises:
            ConfigError: an argument breaks its rule.
        """
        hidden = secret.encode() if isinstance(secret, str) else secret
        if not isinstance(hidden, bytes) or len(hidden) < _SHORTEST_SECRET:
            given = f"{len(hidden)} bytes" if isinstance(hidden, bytes) else type(secret).__name__
            raise ConfigError(
                f"the secret must have at least {_SHORTEST_SECRET} bytes, got {given}; make one with "
                "secrets.token_urlsafe(32), and configure the same in every process"
            )
        if not isinstance(snapshot_every, int) or snapshot_every < 1:
            raise ConfigError(f"snapshot_every={snapshot_every!r} must be a number of entries above 0; try 2_000")
        self._client = _client(server)
        self._lent = self._client is server
        self._secret = hashlib.blake2b(hidden, person=b"contextpilot").digest()
        self._key = key
        self._every = snapshot_every
        self._state: SharedState | None = None
        self._work = threading.Event()
        self._closed = threading.Event()
        self._moved = threading.Condition()  # guards what follows, and tells of progress
        self._epoch: bytes | None = None  # None while the log is out of reach
        self._position: Position = b"0-0"
        self._sent = 0
        self._joins = 0
        self._told = False  # that the log is out of reach
        self._threads: tuple[threading.Thread, ...] = ()
        self._process = os.getpid()

    def seal(self, digest: bytes) -> bytes:
        """Return what stands for a digest in all processes: 16 bytes, keyed."""
        return hashlib.blake2b(digest, key=self._secret, digest_size=_DIGEST_BYTES).digest()

    def open(self, state: SharedState) -> None:
        """Begin to exchange operations (`ReuseEngine` calls this).

        Raises:
            ConfigError: the store belongs to another engine already, or is closed.
        """
        if self._state is not None or self._closed.is_set():
            raise ConfigError("a RedisStore serves one engine, and none when it is closed; make another one")
        self._state = state
        # Other rules, other states: they get a log of their own. The braces keep its keys together in a cluster.
        same = hashlib.blake2b(f"{VERSION} {rules(state.config)}".encode(), key=self._secret, digest_size=6).hexdigest()
        self._redis_log = RedisLog(self._client, f"{{{self._key}:{same}}}")
        self._threads = tuple(
            threading.Thread(target=run, args=(state,), name=f"contextpilot-redis-{name}", daemon=True)
            for name, run in (("reader", self._run_reader), ("writer", self._run_writer))
        )
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Take note of a new operation (the engine calls this)."""
        if os.getpid() != self._process and not self._closed.is_set():
            self._closed.set()  # said once
            _log.error("a RedisStore does not survive a fork: make it, and its engine, in the process that uses them")
        if not self._work.is_set():
            self._work.set()

    def synchronize(self, timeout: float = 5.0) -> bool:
        """Wait until all operations of this process, and what others appended before now, are part of the copy.

        Returns False when that took longer than ``timeout`` seconds.
        """
        state, deadline = self._opened(), time.monotonic() + timeout
        last = state.last
        while not self._closed.is_set():
            with self._moved:
                left = deadline - time.monotonic()
                if not self._moved.wait_for(lambda: self._epoch is not None and state.returned >= last, max(0.0, left)):
                    return False
            if self._at_end(deadline):
                return True
            self._closed.wait(_PAUSES[0])
        return False

    def _at_end(self, deadline: float) -> bool:
        """Wait until the present end of the log was read; False when it cannot be told or takes too long."""
        epoch = self._epoch
        try:
            end = None if epoch is None else self._redis_log.end(epoch)
        except (redis.RedisError, OSError):
            return False
        if end is None:
            return False
        with self._moved:
            left = deadline - time.monotonic()
            return self._moved.wait_for(lambda: epoch == self._epoch and not later(end, self._position), max(0.0, left))

    def digest(self) -> str:
        """Return SHA-256 of the copy of the shared state: equal wherever the log was read equally far."""
        return hashlib.sha256(encode_snapshot(self._opened().snapshot())).hexdigest()

    def close(self, timeout: float = 5.0) -> None:
        """Send what waits, at most for ``timeout`` seconds, and end the threads; the engine plans on alone."""
        if self._closed.is_set():
            return
        if self._state is not None and not self._told:
            self.synchronize(timeout)
        self._closed.set()
        self._work.set()
        for thread in self._threads:
            thread.join(_SOCKET_SECONDS + timeout)
        if not self._lent:
            self._client.close()

    def __enter__(self) -> "RedisStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> SharedState:
        if self._state is None:
            raise ConfigError("this RedisStore has no engine yet; give it to ReuseEngine(journal=...)")
        return self._state

    # -- the reader ----------------------------------------------------------------------------------------------

    def _run_reader(self, state: SharedState) -> None:
        first, most = _PAUSES
        pause = first
        try:
            while not self._closed.is_set():
                try:
                    if self._join(state):
                        pause = first
                        self._follow(state)
                        continue
                except (redis.RedisError, OSError) as error:
                    self._leave(state, error)
                self._closed.wait(pause)
                pause = min(2 * pause, most)
        finally:
            self._leave(state, None)

    def _join(self, state: SharedState) -> bool:
        """Take over what the log says, from its snapshot to its end; False when that has to be tried again."""
        found = self._redis_log.find()
        if found is None:
            self._redis_log.begin(encode_snapshot(state.snapshot()))
            return False
        try:
            copy = LogState.restored(state.config, decode_snapshot(found.snapshot))
        except (ValueError, LookupError, IntegrityError):
            self._redis_log.give_up(found.epoch)
            return False
        position, more = found.position, True
        while more:
            batch = self._redis_log.read(found.epoch, position, most=_READ)
            if batch is None:
                return False
            for entry in batch.entries:
                copy.apply(entry)
            position, more = batch.position, batch.full
        state.attach(copy)
        with self._moved:
            self._epoch, self._position = found.epoch, position
            self._sent = copy.numbers.get(state.worker, 0)
            self._joins += 1
            self._told = False
            self._moved.notify_all()
        self._work.set()
        _log.info("worker %s follows the log %s in Redis", state.worker, found.epoch.decode(errors="replace"))
        return True

    def _follow(self, state: SharedState) -> None:
        """Follow the log until the store is closed or the log cannot be followed further."""
        epoch = self._epoch
        while epoch is not None and not self._closed.is_set():
            batch = self._redis_log.read(epoch, self._position, most=_READ, wait=_WAIT_MS)
            if batch is None:
                _log.warning("worker %s missed a part of the log in Redis: taking its snapshot", state.worker)
                return
            due = bool(batch.entries) and state.deliver(batch.entries, every=self._every)
            with self._moved:
                self._position = batch.position
                self._moved.notify_all()
            if due:
                # Nobody else changes the copy now, so the engine need not wait for its snapshot.
                self._redis_log.save(epoch, encode_snapshot(state.log.snapshot()), batch.position)

    def _leave(self, state: SharedState, error: Exception | None) -> None:
        """Let the engine plan alone."""
        with self._moved:
            self._epoch = None
        state.detach()
        if error is not None and not self._told:
            self._told = True
            kind = type(error).__name__
            _log.warning("worker %s plans alone until Redis is there again (%s: %s)", state.worker, kind, error)

    # -- the writer ----------------------------------------------------------------------------------------------

    def _run_writer(self, state: SharedState) -> None:
        first, most = _PAUSES
        pause = first
        while not self._closed.is_set():
            self._work.wait()
            self._work.clear()
            while not self._closed.is_set() and self._epoch is not None and state.last > self._sent:
                if self._send(state):
                    pause = first
                else:
                    self._closed.wait(pause)
                    pause = min(2 * pause, most)

    def _send(self, state: SharedState) -> bool:
        """Append the next operations; those that may be there already come again, and are known by their numbers."""
        with self._moved:
            epoch, sent, join = self._epoch, self._sent, self._joins
        entries = state.own_after(sent, most=_WRITE)
        if epoch is None or not entries:
            return False
        try:
            done = self._redis_log.append(epoch, entries)
        except (redis.RedisError, OSError):
            return False
        with self._moved:
            if done and join == self._joins:
                self._sent = entries[-1].number
        return done


def _client(server: object) -> Any:
    if isinstance(server, str):
        try:
            # Both threads try again by themselves, as long as it takes; no command tries twice.
            return redis.Redis.from_url(
                server,
                socket_timeout=_SOCKET_SECONDS,
                socket_connect_timeout=_SOCKET_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise ConfigError(
                f"the URL of the Redis server cannot be read ({error}); try redis://localhost:6379"
            ) from None
    if not isinstance(server, redis.Redis):
        raise ConfigError(f"server must be a URL or a redis.Redis, got {type(server).__name__}; give one of them")
    if server.connection_pool.connection_kwargs.get("decode_responses"):
        raise ConfigError("the client decodes its answers; make it with decode_responses=False")
    return server
