"""Operations and snapshots as bytes: msgpack, checked against its types when it is read.

Equal values have equal bytes. Nothing but digests, numbers and the names of namespaces and requests goes in.
"""

from typing import Any

from msgspec import MsgspecError, Struct, ValidationError, msgpack

from contextpilot_core.cache import CacheState
from contextpilot_core.journal import (
    Committed,
    Inserted,
    NamespaceSnapshot,
    Operation,
    Recorded,
    Released,
    Rendered,
    Reset,
    Snapshot,
)
from contextpilot_core.prompt import KnownRecord, MessageRecord

VERSION = 2


class _Record(Struct, array_like=True, frozen=True):
    """A `MessageRecord` in one order."""

    labels: tuple[tuple[bytes, int], ...]
    rendered: tuple[int, ...]
    doubtful: tuple[int, ...]
    highest: int
    path: tuple[tuple[bytes, int], ...]
    pieces: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, record: MessageRecord) -> "_Record":
        labels = tuple(sorted(record.labels.items()))
        rendered, doubtful = tuple(sorted(record.rendered)), tuple(sorted(record.doubtful))
        return cls(labels, rendered, doubtful, record.highest, record.path, record.pieces)

    def value(self) -> MessageRecord:
        labels, rendered, doubtful = dict(self.labels), frozenset(self.rendered), frozenset(self.doubtful)
        return MessageRecord(labels, rendered, doubtful, self.highest, self.path, self.pieces)


class _Rendered(Struct, frozen=True):
    namespace: str
    request_id: str
    key: bytes
    record: _Record


class _Known(Struct, array_like=True, frozen=True):
    key: bytes
    record: _Record
    seen: float
    owners: tuple[str, ...]


class _Namespace(Struct, frozen=True):
    namespace: str
    blocks: tuple[tuple[bytes, int], ...]
    cache: CacheState
    records: tuple[_Known, ...]


class _Snapshot(Struct, frozen=True):
    version: int
    entries: int
    time: float
    numbers: tuple[tuple[str, int], ...]
    namespaces: tuple[_Namespace, ...]


_KINDS: dict[str, Any] = {
    "inserted": Inserted,
    "committed": Committed,
    "rendered": _Rendered,
    "released": Released,
    "recorded": Recorded,
    "reset": Reset,
}
_DECODERS = {kind: msgpack.Decoder(form) for kind, form in _KINDS.items()}
_SNAPSHOT = msgpack.Decoder(_Snapshot)


def encode_operation(operation: Operation) -> tuple[str, bytes]:
    """Return the kind of an operation, and its values."""
    kind = type(operation).__name__.lower()
    if isinstance(operation, Rendered):
        record = _Record.of(operation.record)
        return kind, msgpack.encode(_Rendered(operation.namespace, operation.request_id, operation.key, record))
    return kind, msgpack.encode(operation)


def decode_operation(kind: str, values: bytes) -> Operation:
    """Return the operation.

    Raises:
        ValueError: the kind is unknown, or the values are not of their types.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"operations of kind {kind[:20]!r} are unknown")
    operation: Operation | _Rendered = _decoded(decoder, values)
    if isinstance(operation, _Rendered):
        return Rendered(operation.namespace, operation.request_id, operation.key, operation.record.value())
    return operation


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes."""
    namespaces = tuple(
        _Namespace(
            part.namespace,
            part.blocks,
            part.cache,
            tuple(_Known(known.key, _Record.of(known.record), known.seen, known.owners) for known in part.records),
        )
        for part in snapshot.namespaces
    )
    return msgpack.encode(_Snapshot(VERSION, snapshot.entries, snapshot.time, snapshot.numbers, namespaces))


def decode_snapshot(values: bytes) -> Snapshot:
    """Return the snapshot.

    Raises:
        ValueError: it is of another version, or the values are not of their types.
    """
    snapshot: _Snapshot = _decoded(_SNAPSHOT, values)
    if snapshot.version != VERSION:
        raise ValueError(f"snapshots of version {snapshot.version} are unknown")
    namespaces = tuple(
        NamespaceSnapshot(
            part.namespace,
            part.blocks,
            part.cache,
            tuple(KnownRecord(known.key, known.record.value(), known.seen, known.owners) for known in part.records),
        )
        for part in snapshot.namespaces
    )
    return Snapshot(snapshot.entries, snapshot.time, snapshot.numbers, namespaces)


def _decoded(decoder: "msgpack.Decoder[Any]", values: bytes) -> Any:
    try:
        return decoder.decode(values)
    except (MsgspecError, UnicodeDecodeError) as error:
        kind = "not of their types" if isinstance(error, ValidationError) else "no msgpack"
        raise ValueError(f"{len(values)} bytes are {kind}") from None
