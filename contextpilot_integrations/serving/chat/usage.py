"""What a server took from its prefix cache, as it says (docs: "Per-request truth"); the figures of an answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from contextpilot_core import Message, estimate_tokens
from contextpilot_core.tokens import MOST_TOKENS
from contextpilot_integrations.serving.chat.entries import message_tokens

PLAUSIBLE = 8
"""A byte of text is two tokens at most, by that and by the usual estimate of four bytes to a token."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one request as the server reported them. None is unknown, which is not 0.

    This is the door for what servers say: what is no number of tokens (negative, no int, beyond all prompts) is
    unknown. A server that reports more cached tokens than the prompt has contradicts itself: then all of the prompt
    counts as cached, here and in all that is computed from it.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        """Keep what may be true."""
        prompt, cached = _count(self.prompt_tokens), _cached(self.cached_tokens)
        if cached is not None and prompt is not None:
            cached = min(cached, prompt)
        known = {"prompt_tokens": prompt, "completion_tokens": _count(self.completion_tokens), "cached_tokens": cached}
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @property
    def hit_rate(self) -> float | None:
        """Cached share of the prompt, 0 to 1; None when it is unknown or the prompt was empty."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def prefilled_tokens(self) -> int | None:
        """Prompt tokens that the server had to compute; None when unknown."""
        if self.cached_tokens is None or self.prompt_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens

    def updated(self, later: "Usage") -> "Usage":
        """Return what is known after a ``later`` piece of the same answer: the last report counts, nothing is added.

        A piece that tells of no prompt (0 tokens) says nothing of its cached part either.
        """
        told = {name: value for name, value in vars(later).items() if value is not None}
        if later.prompt_tokens == 0 and self.prompt_tokens:
            told = {name: value for name, value in told.items() if name == "completion_tokens" and value}
        return replace(self, **told)


@dataclass(frozen=True, kw_only=True)
class TurnFigures:
    """What was predicted and reported for one prompt, and how its engine does.

    prompt_tokens, predicted, reported: tokens, the latter two cached ones, as in `Observation`; None is unknown.
    plan_seconds: time to plan and render. hit_rate: cached share of this prompt, 0 to 1. source: what the prediction
    relied on. drift, live_contexts, evictions: of the namespace, as in `EngineStats`.
    """

    request_id: str
    plan_seconds: float
    prompt_tokens: int | None
    predicted: int | None
    reported: int | None
    hit_rate: float | None
    source: Literal["events", "estimate"]
    drift: float | None
    live_contexts: int
    evictions: int


def read_usage(response: Any) -> Usage:
    """Read a response, or the last chunk of a stream: an object of a client library, or the JSON as a dict.

    OpenAI form first (``usage.prompt_tokens_details.cached_tokens``: vLLM, SGLang, llama.cpp and others), then
    llama.cpp's ``timings`` (``cache_n`` cached, ``prompt_n`` computed). LangChain's messages and LlamaIndex's responses
    are read, too. What is missing or null stays unknown.
    """
    if not isinstance(_get(response, "usage_metadata"), Mapping) and (raw := _get(response, "raw")) is not None:
        response = raw  # LlamaIndex's responses
    if isinstance(metadata := _get(response, "usage_metadata"), Mapping):  # LangChain's messages
        return Usage(
            prompt_tokens=metadata.get("input_tokens"),
            completion_tokens=metadata.get("output_tokens"),
            cached_tokens=_get(metadata.get("input_token_details"), "cache_read"),
        )
    usage, timings = _get(response, "usage"), _get(response, "timings")
    details = _get(usage, "prompt_tokens_details")
    told = Usage(
        prompt_tokens=_get(usage, "prompt_tokens"),
        completion_tokens=_get(usage, "completion_tokens"),
        cached_tokens=_get(details, "cached_tokens"),
    )
    cache_n, prompt_n = _cached(_get(timings, "cache_n")), _count(_get(timings, "prompt_n"))
    both = None if cache_n is None or prompt_n is None else cache_n + prompt_n
    return Usage(prompt_tokens=both, completion_tokens=_get(timings, "predicted_n"), cached_tokens=cache_n).updated(
        told
    )


def scale_of(prompt_tokens: int | None, counted: int, usual: int) -> float | None:
    """Return a server's tokens per counted one, by its report for a prompt; None while that is not known.

    ``counted``: by our own counter; ``usual``: by the usual estimate, `usual_tokens`.

    It is not known by a report that no tokenizer can mean, either: more than `PLAUSIBLE` times what both say, or less
    than that share. (Tools and pictures, which nobody counts here, may be the reason as well.) Who believed it would
    drop turns from a window that is not full.
    """
    if not prompt_tokens or counted <= 0:
        return None
    least, most = min(counted, usual), max(counted, usual)
    return prompt_tokens / counted if least <= PLAUSIBLE * prompt_tokens and prompt_tokens <= PLAUSIBLE * most else None


def usual_tokens(messages: Iterable[Message]) -> int:
    """Return the tokens of messages by the usual estimate."""
    return sum([message_tokens(message, estimate_tokens) for message in messages])


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(value: Any) -> int | None:
    """Return a number of tokens that may be true, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def _cached(value: Any) -> int | None:
    """Return a number of cached tokens, None for what is none; one beyond all prompts is that of the whole prompt."""
    return _count(min(value, MOST_TOKENS)) if isinstance(value, int) else None
