"""KV cache events as vLLM and SGLang send them: msgpack ``[ts, events, rank]``, events as maps or arrays.

An event is a map with its kind under ``type``, or, in older engines, an array that starts with the kind and gives the
fields by position (vLLM's order). Unknown keys, kinds and positions are ignored; absent is None.
"""

from dataclasses import dataclass
from typing import Any

from contextpilot_core.mirror import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from contextpilot_integrations import extras

_KINDS: dict[str, tuple[type[KVEvent], tuple[str, ...]]] = {
    "BlockStored": (
        BlockStored,
        (
            *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
            *("extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality"),
        ),
    ),
    "BlockRemoved": (BlockRemoved, ("block_hashes", "medium", "group_idx", "locality")),
    "AllBlocksCleared": (AllBlocksCleared, ()),
}


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """What an engine published at ``time`` (its clock, seconds); ``unknown`` events of other kinds were left out."""

    time: float
    events: tuple[KVEvent, ...]
    unknown: int


class EventDecoder:
    """Reads payloads of the event stream.

    Raises:
        MissingExtraError: ``msgspec`` is not installed.
    """

    def __init__(self) -> None:
        self._msgspec: Any = extras.load("msgspec", extra="events")
        self._read = self._msgspec.msgpack.Decoder().decode

    def decode(self, payload: bytes) -> EventBatch | None:
        """Return the batch, or None when the payload or one of its events is malformed."""
        try:
            match self._read(payload):
                case [float(time) | int(time), [*raw], *_]:
                    events = [self._event(one) for one in raw]
                case _:
                    return None
        except (self._msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        known = tuple(event for event in events if event is not None)
        return EventBatch(time=time, events=known, unknown=len(events) - len(known))

    def _event(self, raw: Any) -> KVEvent | None:
        """The event, or None for a kind that is not known."""
        match raw:
            case {"type": str(kind)}:
                fields: Any = raw
            case [str(kind), *values]:
                fields = values
            case _:
                raise self._msgspec.ValidationError(
                    "an event must be a map with its type, or an array that starts with it"
                )
        if kind not in _KINDS:
            return None
        cls, names = _KINDS[kind]
        if isinstance(fields, list):
            fields = dict(zip(names, fields, strict=False))
        event: KVEvent = self._msgspec.convert(fields, cls)
        return event
