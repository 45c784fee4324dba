"""What a serving engine says about its KV blocks, whatever wire it came over (docs: "Cache events")."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextpilot_core.errors import RequestTypeError

BlockHash = int | bytes
"""An engine's name for a KV block and all tokens before it; opaque, equal only to itself."""

_SEES_ALL_TOKENS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})


@dataclass(frozen=True, kw_only=True)
class BlockStored:
    """A run of full KV blocks, each following the one before, has entered a cache. None: the engine did not say.

    ``token_ids`` are those of all blocks, ``block_size`` each. ``extra_keys`` has one entry per block: what the hash
    covers besides tokens (adapter name, image hashes, salt in the first block). SGLang gives ``cache_salt`` instead.
    """

    block_hashes: tuple[BlockHash, ...]
    parent_block_hash: BlockHash | None
    token_ids: tuple[int, ...]
    block_size: int
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: tuple[tuple[Any, ...] | None, ...] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None
    cache_salt: str | None = None

    @property
    def decides_reuse(self) -> bool:
        """Whether a prompt can be served from these blocks: on the GPU, of layers that attend to the whole prefix.

        On hybrid models those layers' blocks stay until they are evicted, so they tell how far a prefix reaches.
        """
        return on_gpu(self.medium, self.locality) and self.kv_cache_spec_kind in _SEES_ALL_TOKENS


@dataclass(frozen=True, kw_only=True)
class BlockRemoved:
    """One physical copy of each block has left a cache."""

    block_hashes: tuple[BlockHash, ...]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


@dataclass(frozen=True, kw_only=True)
class AllBlocksCleared:
    """Every block has left every cache of the rank."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


def checked(event: KVEvent) -> None:
    """Raise `RequestTypeError` for an event whose values no engine sends; token ids and extra keys are read later."""
    wrong = [name for name, fits in _FITS.items() if hasattr(event, name) and not fits(getattr(event, name))]
    if wrong:
        kind = type(getattr(event, wrong[0])).__name__
        raise RequestTypeError(
            f"{wrong[0]} of a {type(event).__name__} is a {kind} that no engine sends; give what was decoded"
        )


def _is_name(value: object) -> bool:
    return isinstance(value, (int, bytes))


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "block_hashes": lambda value: isinstance(value, (tuple, list)) and all(map(_is_name, value)),
    "parent_block_hash": lambda value: value is None or _is_name(value),
    "token_ids": lambda value: isinstance(value, Sequence),
    "block_size": lambda value: isinstance(value, int),
    "extra_keys": lambda value: isinstance(value, (tuple, list, type(None))),
    "medium": lambda value: isinstance(value, str | None),
    "locality": lambda value: isinstance(value, str | None),
    "kv_cache_spec_kind": lambda value: isinstance(value, str | None),
    "group_idx": lambda value: isinstance(value, int | None),
}


def on_gpu(medium: str | None, locality: str | None) -> bool:
    """Return whether a medium is the publisher's own GPU cache; engines that name none have no other."""
    return (medium is None or medium.upper() == "GPU") and locality != "REMOTE"
