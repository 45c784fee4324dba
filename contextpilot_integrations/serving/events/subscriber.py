"""Follows the cache events of vLLM and SGLang over ZeroMQ (docs: "Cache events")."""

import logging
import math
import os
import socket as sockets
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

from contextpilot_core import ConfigError, KVMirror
from contextpilot_core.checks import kind_of, number, shown, whole_number
from contextpilot_integrations import extras
from contextpilot_integrations.serving.events.codec import EventDecoder
from contextpilot_integrations.serving.events.feed import Batch, EventFeed, EventStatus

_log = logging.getLogger(__name__)

POLL_MS = 100
"""How soon `KVEventSubscriber.close` is noticed."""

RETRY_SECONDS = 10.0
"""Pause between replays that are asked for after one could not be had."""

HINT_SECONDS = 15.0
"""After so long without a connection the log says what to look at."""

_SEQUENCE_BYTES, _LONGEST_PORT = 8, 5


class KVEventSubscriber(AbstractContextManager["KVEventSubscriber"]):
    """Keeps a `KVMirror` up to date with one publisher; a thread of its own, until `close`.

        mirror = KVMirror()
        with KVEventSubscriber("tcp://*:5557", mirror, replay_endpoint="tcp://*:5558"):
            ...

    The engine needs ``--kv-events-config`` (vLLM, SGLang) with ``"publisher": "zmq"``. Every data-parallel rank
    publishes for itself: one subscriber per rank, all with the same mirror. While the stream is not known to be whole,
    the mirror is suspended; `status` and the log say why. Make both in the process that uses them, after any fork.
    """

    def __init__(
        self,
        endpoint: str,
        mirror: KVMirror,
        *,
        replay_endpoint: str | None = None,
        rank: int = 0,
        bind: bool = False,
        topic: str = "",
        replay_timeout: float = 5.0,
    ) -> None:
        """Connect and start.

        Args:
            endpoint: the engine's ``endpoint``, as it is in its own configuration (``*`` is read as 127.0.0.1, ``[::]``
                as ``[::1]``), or with the host at which it can be reached; IPv6 addresses stand in brackets.
            mirror: is fed; one serving engine each.
            replay_endpoint: the engine's ``replay_endpoint``. Without it, every gap and a late start empty the mirror.
            rank: the data-parallel rank; counts up the ports of tcp endpoints, as the engine does.
            bind: True where the engine connects: vLLM does so when its endpoint names a host instead of ``*``.
            topic: the engine's ``topic``, or its beginning.
            replay_timeout: seconds of silence after which a replay is given up.

        Raises:
            MissingExtraError: ``pyzmq`` or ``msgspec`` is not installed.
            ConfigError: an endpoint cannot be used, or a value breaks its rule.
        """
        whole_number("rank", rank, "give the data-parallel rank", least=0)
        kind_of("bind", bind, bool, "True where the engine connects, or False")
        kind_of("topic", topic, str, "a str: the engine's topic, '' for all")
        if not isinstance(mirror, KVMirror):
            raise ConfigError(f"mirror must be a KVMirror, got {type(mirror).__name__}; make one for the engine")
        self._replay_timeout = number("replay_timeout", replay_timeout, "give seconds, 5 is usual", above=0)
        self._zmq: Any = extras.load("zmq", extra="events")
        self._endpoint = _reachable(endpoint, rank, bind=bind)
        self._replay_endpoint = None if replay_endpoint is None else _reachable(replay_endpoint, rank, bind=False)
        decoder = EventDecoder()
        self._context = self._zmq.Context()
        try:
            self._socket, self._monitor = self._open(topic, bind=bind)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._name = f"cache events from {self._endpoint}"
        self._feed = EventFeed(mirror, decoder, rank=rank, name=self._name)
        self._connected = False
        self._hint_at, self._retry_at = time.monotonic() + HINT_SECONDS, 0.0
        self._closing, self._process = threading.Event(), os.getpid()
        self._thread = threading.Thread(target=self._run, name="contextpilot-kv-events", daemon=True)
        self._thread.start()

    @property
    def status(self) -> EventStatus:
        """Counts of the stream, and whether the mirror may be trusted for it."""
        return self._feed.status

    def close(self) -> None:
        """Stop and wait for the thread's end; the mirror stays suspended. A second call does nothing.

        In a forked child there is nothing to stop: thread and sockets are the parent's.
        """
        if os.getpid() == self._process:
            self._closing.set()
            self._thread.join()

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.close()

    def _open(self, topic: str, *, bind: bool) -> tuple[Any, Any]:
        zmq = self._zmq
        socket = self._socket_for(self._endpoint, zmq.SUB)
        socket.set_hwm(0)  # the engine drops what is not taken; what it has sent waits here during a replay
        socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            (socket.bind if bind else socket.connect)(self._endpoint)
            if self._replay_endpoint is not None:
                with self._socket_for(self._replay_endpoint, zmq.DEALER) as probe:
                    probe.connect(self._replay_endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"the endpoint {self._endpoint!r} or {self._replay_endpoint!r} cannot be used ({error}); "
                "give endpoints as tcp://HOST:PORT, tcp://[IPV6]:PORT or ipc://PATH"
            ) from error
        return socket, monitor

    def _socket_for(self, endpoint: str, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(self._zmq.IPV6, _needs_ipv6(endpoint))
        return socket

    def _run(self) -> None:
        poller = self._zmq.Poller()
        for socket in (self._monitor, self._socket):
            poller.register(socket, self._zmq.POLLIN)
        try:
            while not self._closing.is_set():
                ready = dict(poller.poll(POLL_MS))
                if self._monitor in ready:  # before the batches, which may be of another run of the engine
                    self._notice(self._monitor.recv_multipart())
                elif self._socket in ready:
                    self._take(self._socket.recv_multipart())
                self._look_after()
            self._feed.end("the subscriber is closed")
        except Exception:  # noqa: BLE001  # logged; nobody waits for this thread
            _log.exception("%s: stopped by an error", self._name)
            self._feed.end("the subscriber was stopped by an error, see the log")
        finally:
            self._context.destroy(linger=0)

    def _notice(self, frames: list[bytes]) -> None:
        """The engine has come or gone."""
        event = int.from_bytes(frames[0][:2], sys.byteorder)
        self._connected = event == self._zmq.EVENT_HANDSHAKE_SUCCEEDED
        if not self._connected:
            self._feed.away()
        elif self._replay_endpoint is not None:
            self._recover()

    def _take(self, frames: list[bytes]) -> None:
        self._connected = True
        if len(frames) != 3 or len(frames[1]) != _SEQUENCE_BYTES:
            self._feed.stray()
            return
        sequence = int.from_bytes(frames[1], "big")
        self._feed.take(sequence, frames[2], None if self._replay_endpoint is None else self._ask)

    def _look_after(self) -> None:
        now = time.monotonic()
        if not self._connected and now > self._hint_at:
            self._hint_at = math.inf
            _log.warning(
                "%s: nothing is connected; check the engine's --kv-events-config, and bind=True where its endpoint "
                "names a host (the engine connects then)",
                self._name,
            )
        if self._connected and self._replay_endpoint is not None and self._feed.recoverable and now > self._retry_at:
            self._recover()

    def _recover(self) -> None:
        self._feed.recover(self._ask)
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def _ask(self, start: int) -> list[Batch] | None:
        """The engine's batches from ``start`` on, as far as they come; None when nothing comes."""
        batches: list[Batch] = []
        # A new one: late answers to earlier questions are gone.
        with self._socket_for(str(self._replay_endpoint), self._zmq.DEALER) as socket:
            socket.setsockopt(self._zmq.LINGER, 0)
            socket.set_hwm(0)
            socket.connect(self._replay_endpoint)
            socket.send_multipart([b"", start.to_bytes(_SEQUENCE_BYTES, "big")])
            deadline = time.monotonic() + self._replay_timeout
            while not self._closing.is_set() and time.monotonic() < deadline:
                if not socket.poll(POLL_MS):
                    continue
                frames = socket.recv_multipart()  # the last two; older engines send no topic before them
                number = int.from_bytes(b"".join(frames[-2:-1]), "big", signed=True)
                if number < 0:
                    return batches
                batches.append((number, frames[-1]))
                deadline = time.monotonic() + self._replay_timeout
        return batches or None


def _reachable(endpoint: str, rank: int, *, bind: bool) -> str:
    """The endpoint of a rank as this side must name it. Engines count up the port by the rank."""
    if not isinstance(endpoint, str):
        raise ConfigError(f"endpoint={shown(endpoint)} must be a str; give it as tcp://HOST:PORT or ipc://PATH")
    if rank and endpoint.startswith("tcp://"):
        address, _, port = endpoint.rpartition(":")
        if not port.isdecimal() or len(port) > _LONGEST_PORT:
            raise ConfigError(f"endpoint={endpoint!r} must end with a port; give it as tcp://HOST:PORT")
        endpoint = f"{address}:{int(port) + rank}"
    if bind:
        return endpoint
    return endpoint.replace("tcp://*:", "tcp://127.0.0.1:").replace("tcp://[::]:", "tcp://[::1]:")


def _needs_ipv6(endpoint: str) -> bool:
    """Tell whether an endpoint names an IPv6 address, or a host that has no other.

    Where both are there, IPv4 it is: ZeroMQ would try IPv6 alone, and engines listen on IPv4 unless told otherwise.
    """
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    if not endpoint.startswith("tcp://") or host in ("*", ""):
        return False
    if ":" in host:
        return True
    try:
        families = {found[0] for found in sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return bool(families) and sockets.AF_INET not in families
