"""Our own names for KV blocks: one digest per full block, chained over everything before it.

Engines' hashes depend on their version and seeds, and cannot be computed for a prompt that was not sent yet. These keys
can, from the token ids alone; equal keys mean equal tokens, adapter and salt from the start of the prompt.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

KEY_BYTES = 16
ROOT = bytes(KEY_BYTES)

Extras = Sequence[Any] | None
"""What a block's identity covers besides its tokens; None and empty are the same."""


def chain(parent: bytes, token_ids: Sequence[int], block_size: int, extras: Sequence[Extras] = ()) -> Iterator[bytes]:
    """Yield the key of every full block of ``token_ids`` that follows the block ``parent`` (`ROOT`: none).

    ``extras`` belong to the first blocks; those beyond have none. About 0.2 ms for 3,000 tokens.

    Raises:
        TypeError: a token id is no whole number.
        OverflowError: a token id does not fit 32 bits.
    """
    packed = array("i", token_ids)
    data, width = packed.tobytes(), packed.itemsize * block_size
    prefix = block_size.to_bytes(8, "little")  # where the tokens end and the extras begin
    for number in range(len(packed) // block_size):
        extra = extras[number] if number < len(extras) else None
        content = prefix + parent + data[number * width : (number + 1) * width]
        if extra:
            content += repr(_plain(extra)).encode("utf-8", "surrogatepass")
        parent = hashlib.blake2b(content, digest_size=KEY_BYTES).digest()
        yield parent


def prompt_extras(blocks: int, *, salt: str | None, lora: int | str | None) -> list[Extras]:
    """Return the extras of a prompt's first ``blocks`` blocks: the adapter in each, the salt in the first only."""
    extras: list[Extras] = [(lora,) if lora is not None else ()] * blocks
    if blocks and salt is not None:
        extras[0] = (*(extras[0] or ()), salt)
    return extras


def closed(keys: Sequence[bytes], seal: Callable[[bytes], bytes]) -> bytes:
    """Return keys in a form that tells nothing to those who lack ``seal``, a keyed digest of 16 bytes; see `opened`.

    Whoever guesses a text could check the guess by its keys. The mask differs wherever the keys do.
    """
    data = b"".join(keys)
    name = seal(hashlib.blake2b(data, digest_size=KEY_BYTES).digest())
    return name + _masked(data, name, seal)


def opened(closed: bytes, seal: Callable[[bytes], bytes]) -> tuple[bytes, ...]:
    """Return the keys that were `closed` under the same seal."""
    name, data = closed[:KEY_BYTES], closed[KEY_BYTES:]
    plain = _masked(data, name, seal)
    return tuple([plain[at : at + KEY_BYTES] for at in range(0, len(plain), KEY_BYTES)])


def _masked(data: bytes, name: bytes, seal: Callable[[bytes], bytes]) -> bytes:
    mask = hashlib.shake_256(seal(b"mask" + name)).digest(len(data))
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(len(data), "little")


def _plain(value: Any) -> Any:
    """Lists as tuples, so that one value has one text whatever decoder it came through."""
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
