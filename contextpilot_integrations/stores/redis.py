"""Several application processes share one view of one serving engine's prefix cache through Redis (docs: "Workers").

Every process has an engine with a copy of the shared state, so planning asks nobody. Two threads per process keep the
copy in step: one appends what was planned here to a log (a Redis stream), the other follows the log.
"""

import hashlib
import logging
import os
import threading
from contextlib import AbstractContextManager
from typing import Any

from contextpilot_core import ConfigError
from contextpilot_core.checks import number, whole_number
from contextpilot_core.journal import SharedState, rules
from contextpilot_integrations.secret_keys import secret_key
from contextpilot_integrations.stores.codec import VERSION, encode_snapshot
from contextpilot_integrations.stores.connection import connected
from contextpilot_integrations.stores.exchange import Exchange
from contextpilot_integrations.stores.redis_log import RedisLog

_log = logging.getLogger(__name__)
_DIGEST_BYTES = 16


class RedisStore(AbstractContextManager["RedisStore"]):
    """The journal of one engine.

        store = RedisStore("redis://localhost:6379", secret=os.environ["CONTEXTPILOT_SECRET"])
        engine = ReuseEngine(config, journal=store)

    Make both in the process that uses them, after any fork, and with the same ``secret`` and the same bounds in the
    configuration everywhere: other ones share another view. In Redis stand names of namespaces and requests, numbers,
    and digests that nobody without the secret can tell from chance; never a text. Anyone with write access can corrupt
    the shared view: use a password.

    While Redis is out of reach the engine plans on alone; afterwards the processes agree again, and nothing is lost
    up to 10,000 operations of a process. If Redis loses data, the processes put back what they know. A process that
    ends without `close` may leave its last operations unsent; plans that it had in flight count as sent, and age like
    any other.
    """

    def __init__(
        self, server: Any, *, secret: str | bytes, key: str = "contextpilot", snapshot_every: int = 2_000
    ) -> None:
        """Prepare; nothing is sent before an engine is there.

        Args:
            server: a URL, or a `redis.Redis` that answers in bytes and waits for an answer at least a second. What a
                URL says about decoding, protocol and retries does not count. Two connections are used; with one, others
                hear of an operation a little later.
            secret: at least 16 bytes, the same in all processes; it is not sent.
            key: begins the name of every key in Redis.
            snapshot_every: a snapshot is written, and the log trimmed, once in so many entries.

        Raises:
            ConfigError: an argument breaks its rule.
        """
        self._secret = hashlib.blake2b(secret_key("secret", secret), person=b"contextpilot").digest()
        self._client = connected(server)
        self._lent = self._client is server
        self._key = key
        self._every = whole_number("snapshot_every", snapshot_every, "give entries, 2000 is usual")
        self._state: SharedState | None = None
        self._exchange: Exchange | None = None
        self._process = os.getpid()

    def seal(self, digest: bytes) -> bytes:
        """Return what stands for a digest in all processes: 16 bytes, keyed."""
        return hashlib.blake2b(digest, key=self._secret, digest_size=_DIGEST_BYTES).digest()

    def open(self, state: SharedState) -> None:
        """Begin to exchange operations (`ReuseEngine` calls this).

        Raises:
            ConfigError: the store has or had an engine already.
        """
        if self._state is not None:
            raise ConfigError("a RedisStore serves one engine, also when it is closed; make another one")
        self._state = state
        # Other rules make other states: they get a log of their own. Braces keep its keys together in a cluster.
        same = hashlib.blake2b(f"{VERSION} {rules(state.config)}".encode(), key=self._secret, digest_size=6).hexdigest()
        self._exchange = Exchange(state, RedisLog(self._client, f"{{{self._key}:{same}}}"), every=self._every)

    def wake(self) -> None:
        """Take note of a new operation (the engine calls this)."""
        exchange = self._here()
        if exchange is not None:
            exchange.wake()

    def synchronize(self, timeout: float = 5.0) -> bool:
        """Wait until all operations of this process, and what others appended before now, are part of the copy.

        Returns False when that took longer than ``timeout`` seconds.

        Raises:
            ConfigError: ``timeout`` is no number of at least 0.
        """
        _check_seconds(timeout)
        exchange = self._here()
        return exchange is not None and exchange.synchronize(timeout)

    def digest(self) -> str:
        """Return SHA-256 of the copy of the shared state: equal wherever the log was read equally far.

        Raises:
            ConfigError: there is no engine yet.
        """
        if self._state is None:
            raise ConfigError("this RedisStore has no engine yet; give it to ReuseEngine(journal=...)")
        return hashlib.sha256(encode_snapshot(self._state.snapshot())).hexdigest()

    def close(self, timeout: float = 5.0) -> None:
        """Send what waits and end the threads, within ``timeout`` seconds; the engine plans on alone.

        A thread that waits for Redis by then ends by itself, as soon as Redis or its time limit answers.

        Raises:
            ConfigError: ``timeout`` is no number of at least 0.
        """
        _check_seconds(timeout)
        exchange, self._exchange = self._here(), None
        if exchange is not None and exchange.close(timeout) and not self._lent:
            self._client.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _here(self) -> Exchange | None:
        """Return the exchange; None when it is closed, or was left behind in another process by a fork."""
        if self._exchange is not None and os.getpid() != self._process:
            self._exchange = None
            _log.error("a RedisStore does not survive a fork: make it, and its engine, in the process that uses them")
            if self._state is not None:
                self._state.detach()  # nobody follows the log here
        return self._exchange


def _check_seconds(timeout: float) -> None:
    number("timeout", timeout, "give seconds, 5 is usual", least=0, most=threading.TIMEOUT_MAX)
