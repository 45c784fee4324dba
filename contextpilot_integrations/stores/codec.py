"""Operations and snapshots as bytes: msgpack of the core's own values, checked against their types when it is read.

Equal values have equal bytes. Nothing but digests, numbers and the names of namespaces and requests goes in.
"""

from typing import Any

from msgspec import MsgspecError, Raw, ValidationError, msgpack

from contextpilot_core.journal import (
    Committed,
    Inserted,
    Operation,
    Recorded,
    Released,
    Rendered,
    Reset,
    Snapshot,
)

VERSION = 3

_ENCODER = msgpack.Encoder(order="deterministic")
_KINDS = (Inserted, Committed, Rendered, Released, Recorded, Reset)
_DECODERS: dict[str, Any] = {kind.__name__.lower(): msgpack.Decoder(kind) for kind in _KINDS}
_VERSIONED, _SNAPSHOT = msgpack.Decoder(tuple[int, Raw]), msgpack.Decoder(Snapshot)


def encode_operation(operation: Operation) -> tuple[str, bytes]:
    """Return the kind of an operation, and its values."""
    return type(operation).__name__.lower(), _ENCODER.encode(operation)


def decode_operation(kind: str, values: bytes) -> Operation:
    """Return the operation.

    Raises:
        ValueError: the kind is unknown, or the values are not of their types.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"operations of kind {kind[:20]!r} are unknown")
    operation: Operation = _decoded(decoder, values)
    return operation


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes."""
    return _ENCODER.encode((VERSION, snapshot))


def decode_snapshot(values: bytes) -> Snapshot:
    """Return the snapshot.

    Raises:
        ValueError: it is of another version, or the values are not of their types.
    """
    version, content = _decoded(_VERSIONED, values)
    if version != VERSION:
        raise ValueError(f"snapshots of version {version} are unknown")
    snapshot: Snapshot = _decoded(_SNAPSHOT, content)
    return snapshot


def _decoded(decoder: "msgpack.Decoder[Any]", values: bytes | Raw) -> Any:
    try:
        return decoder.decode(values)
    except (MsgspecError, UnicodeDecodeError) as error:
        kind = "not of their types" if isinstance(error, ValidationError) else "no msgpack"
        raise ValueError(f"{len(bytes(values))} bytes are {kind}") from None
