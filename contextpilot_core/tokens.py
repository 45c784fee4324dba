"""Token counting: the engine needs relative weights, not exact counts, so a fast estimate is the default."""

import operator
from collections.abc import Sequence
from typing import Protocol

from contextpilot_core.checks import shown
from contextpilot_core.errors import ConfigError, RequestTypeError

MOST_TOKENS = 1 << 40
_MOST_KNOWN = 1 << 16


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


def checked(counter: TokenCounter) -> TokenCounter:
    """Return ``counter`` with its answers checked: a wrong one would spoil every sum it enters.

    The result raises `RequestTypeError` for what is no whole number, `ConfigError` for one outside 0 .. 2**40.
    """
    if counter is estimate_tokens:
        return counter

    def count(text: str, /) -> int:
        answer = counter(text)
        try:
            tokens = operator.index(answer)
        except TypeError:
            raise RequestTypeError(
                f"token_counter returned a {type(answer).__name__} for a text of {len(text)} characters; "
                "it must return a whole number"
            ) from None
        if not 0 <= tokens <= MOST_TOKENS:
            raise ConfigError(f"token_counter returned {shown(tokens)}; it must return one from 0 to {MOST_TOKENS}")
        return tokens

    return count


class Weights:
    """The tokens of texts, each counted once: a tokenizer takes far longer than a look at a digest. Thread-safe.

    What is remembered is a function of the text alone, so it tells nobody what others have asked.
    """

    def __init__(self, count: TokenCounter) -> None:
        self.count = count
        self._known: dict[bytes, int] = {}

    def __call__(self, texts: Sequence[str], digests: Sequence[bytes]) -> list[int]:
        """Return the tokens of ``texts``, whose digests are ``digests``."""
        count, known = self.count, self._known
        if count is estimate_tokens:
            return [count(text) for text in texts]
        found = []
        for text, digest in zip(texts, digests, strict=True):
            tokens = known.get(digest)
            if tokens is None:
                tokens = count(text)
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[digest] = tokens
            found.append(tokens)
        return found
