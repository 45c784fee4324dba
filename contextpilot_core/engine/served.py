"""The other door of the engine: what a caller says of a response is checked here, once, before anything counts it."""

from array import array
from collections.abc import Sequence
from operator import index

from contextpilot_core.checks import shown, whole_number
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.tokens import MOST_TOKENS
from contextpilot_core.types import PromptTokens, Served


def checked_served(served: Served) -> Served:
    """Return what is known of a response, its numbers as ints and its token ids as an array of 32 bits.

    More cached tokens than the prompt has are left: they count as all of it.

    Raises:
        RequestTypeError: a value has the wrong type.
        RequestError: a number is outside its rule.
    """
    if not isinstance(served, Served):
        raise RequestTypeError(f"served must be a Served, got {type(served).__name__}; give Served(prompt_tokens=...)")
    if not isinstance(served.cache_salt, str | None):
        raise RequestTypeError(f"cache_salt is a {type(served.cache_salt).__name__}; give the str that was sent")
    return Served(
        prompt_tokens=_tokens("prompt_tokens", served.prompt_tokens),
        cached_tokens=_tokens("cached_tokens", served.cached_tokens),
        tokens=None if served.tokens is None else _prompt(served.tokens),
        cache_salt=served.cache_salt,
    )


def _prompt(tokens: PromptTokens) -> PromptTokens:
    if not isinstance(tokens, PromptTokens):
        raise RequestTypeError(f"tokens must be a PromptTokens, got {type(tokens).__name__}; build one")
    for name in ("token_ids", "ends"):
        value = getattr(tokens, name)
        if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__iter__"):
            raise RequestTypeError(f"{name} must be a sequence of whole numbers, got {type(value).__name__}")
    try:
        ids: Sequence[int] = array("i", map(index, tokens.token_ids))
    except (TypeError, OverflowError):
        raise RequestError(
            "token_ids must hold whole numbers of 32 bits; give those of the server's tokenizer"
        ) from None
    return PromptTokens(
        token_ids=ids,
        start=_tokens("start", tokens.start, len(ids)),
        ends=tuple([_tokens("ends", end, len(ids)) for end in tokens.ends]),
    )


def _tokens(name: str, value: object, most: int = MOST_TOKENS) -> int | None:
    """Return a number of tokens as an int (that of numpy is none), None for unknown."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise RequestTypeError(f"{name}={shown(value)} must be a whole number, or None for unknown; convert it")
    return whole_number(name, index(value), "give what the server reported", least=0, most=most, error=RequestError)
