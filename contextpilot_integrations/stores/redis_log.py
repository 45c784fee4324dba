"""One log in Redis: its keys and commands. No thread, no state of the process.

    NAME:epoch               names the present log; another one begins when Redis lost it
    NAME:EPOCH:log           a stream of entries; the first one that is still there is as old as the snapshot, or older
    NAME:EPOCH:snapshot      a hash: the state, and the position in the stream up to which it holds

A log without its snapshot, or the reverse, is of no use and is given up.
"""

import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from contextpilot_core.journal import Entry
from contextpilot_integrations.stores.codec import VERSION, decode_operation, encode_operation

_log = logging.getLogger(__name__)
_BEGIN = b"0-1"

UNREACHABLE = (redis.RedisError, OSError)
"""What every command may raise."""

REFUSED = (redis.ResponseError,)
"""Those of them with which the server refuses a command."""

Position = bytes
"""The place of an entry in its stream: milliseconds and a number, as Redis makes it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The present log: its name, a snapshot, and up to where the snapshot holds."""

    epoch: bytes
    snapshot: bytes
    position: Position


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read: entries that could be understood, and the position of the last of all."""

    entries: tuple[Entry, ...]
    position: Position
    full: bool


class RedisLog:
    """The commands, for ``client``, a `redis.Redis` that answers in bytes; each may raise `UNREACHABLE`."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.single = client.connection_pool.max_connections < 2
        """Whether there is but one connection: who waits for entries on it keeps all others from theirs."""
        self._name = name.encode()
        self._epoch = self._name + b":epoch"

    def _stream(self, epoch: bytes) -> bytes:
        return b":".join((self._name, epoch, b"log"))

    def _snapshot(self, epoch: bytes) -> bytes:
        return b":".join((self._name, epoch, b"snapshot"))

    def find(self) -> Found | None:
        """Return the present log, None when there is none; one that is not whole is given up."""
        epoch = self._client.get(self._epoch)
        if epoch is None:
            return None
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._snapshot(epoch))
            pipe.xrange(self._stream(epoch), count=1)
            fields, first = pipe.execute()
        found = Found(epoch, fields.get(b"state", b""), fields.get(b"position", b""))
        if not first or not _is_position(found.position) or later(first[0][0], found.position):
            self.give_up(epoch)
            return None
        return found

    def begin(self, snapshot: bytes) -> None:
        """Begin a log with a snapshot, unless there is one by now."""
        epoch = secrets.token_hex(8).encode()
        with self._client.pipeline(transaction=True) as pipe:
            pipe.xadd(self._stream(epoch), {b"version": VERSION}, id=_BEGIN)
            pipe.hset(self._snapshot(epoch), mapping={b"state": snapshot, b"position": _BEGIN})
            pipe.set(self._epoch, epoch, nx=True)
            *_, first = pipe.execute()
        if not first:
            self._client.delete(self._stream(epoch), self._snapshot(epoch))

    def give_up(self, epoch: bytes) -> None:
        """Remove a log, if it is still the present one."""

        def remove(pipe: Any) -> None:
            if pipe.get(self._epoch) == epoch:
                pipe.multi()
                pipe.delete(self._epoch, self._stream(epoch), self._snapshot(epoch))

        _log.warning("the log %s in Redis is not whole: another one begins", epoch.decode(errors="replace"))
        self._client.transaction(remove, self._epoch)

    def append(self, epoch: bytes, entries: Sequence[Entry]) -> bool:
        """Append entries, all or none; False when the log is gone."""
        stream = self._stream(epoch)
        with self._client.pipeline(transaction=True) as pipe:
            for entry in entries:
                try:
                    kind, values = encode_operation(entry.operation)
                except UnicodeEncodeError:
                    _log.warning("an operation is not shared: a name in it holds half a character")
                    continue
                fields = {"version": VERSION, "worker": entry.worker, "number": entry.number, "kind": kind}
                pipe.xadd(stream, {**fields, "values": values}, nomkstream=True)
            return None not in pipe.execute()

    def read(self, epoch: bytes, after: Position, *, most: int, wait: int | None = None) -> Batch | None:
        """Return up to ``most`` entries after a position; None when some may be missing, or the log is gone.

        ``wait``: milliseconds to wait for the first one. The entry at ``after`` is read again: only when it is still
        there, none behind it was trimmed.
        """
        stream = self._stream(epoch)
        with self._client.pipeline(transaction=False) as pipe:
            if wait is not None:
                pipe.xread({stream: after}, count=1, block=wait)
            pipe.xrange(stream, min=after, count=most + 1)
            found = pipe.execute()[-1]
        if not found or found[0][0] != after:
            return None
        entries = (_entry(position, fields) for position, fields in found[1:])
        return Batch(tuple(entry for entry in entries if entry is not None), found[-1][0], len(found) > most)

    def save(self, epoch: bytes, snapshot: bytes, position: Position) -> None:
        """Replace the snapshot by a later one, and forget the entries before the one that is replaced."""
        key = self._snapshot(epoch)

        def replace(pipe: Any) -> None:
            before = pipe.hget(key, b"position")
            if before is None or (_is_position(before) and not later(position, before)):
                return
            pipe.multi()
            pipe.hset(key, mapping={b"state": snapshot, b"position": position})
            if _is_position(before):
                pipe.xtrim(self._stream(epoch), minid=before, approximate=False)

        self._client.transaction(replace, key)

    def end(self, epoch: bytes) -> Position | None:
        """Return the position of the last entry."""
        found = self._client.xrevrange(self._stream(epoch), count=1)
        return found[0][0] if found else None


def _is_position(value: bytes) -> bool:
    return re.fullmatch(rb"\d{1,20}-\d{1,20}", value) is not None


def later(one: Position, other: Position) -> bool:
    """Tell whether a position comes after another one."""
    return _numbers(one) > _numbers(other)


def _numbers(position: Position) -> tuple[int, int]:
    milliseconds, _, number = position.partition(b"-")
    return int(milliseconds), int(number)


def _entry(position: Position, fields: dict[bytes, bytes]) -> Entry | None:
    """Return an entry, None for one that this version does not understand."""
    try:
        if int(fields[b"version"]) != VERSION:
            raise ValueError(f"entries of version {int(fields[b'version'])} are unknown")
        operation = decode_operation(fields[b"kind"].decode(), fields[b"values"])
        worker, number = fields[b"worker"].decode(), int(fields[b"number"])
        if not 0 < number < 2**63:
            raise ValueError("the number of an entry must be above 0 and fit 63 bits")
        return Entry(worker, number, operation, _numbers(position)[0] / 1000)
    except (ValueError, KeyError) as error:
        _log.warning("entry %s of the log in Redis is left out: %s", position.decode(errors="replace"), error)
        return None
