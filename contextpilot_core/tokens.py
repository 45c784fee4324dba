"""Token counting: the engine needs relative weights, not exact counts, so a fast estimate is the default."""

from typing import Protocol


class TokenCounter(Protocol):
    """Anything that maps a text to its number of tokens (0 or more), always the same for the same text."""

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of ``text``."""
        ...


def estimate_tokens(text: str) -> int:
    """Estimate tokens as a quarter of the UTF-8 bytes, at least 1 (0 for the empty text).

    Bytes rather than characters, because scripts outside ASCII take more tokens per character.
    """
    if not text:
        return 0
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return max(1, size // 4)
