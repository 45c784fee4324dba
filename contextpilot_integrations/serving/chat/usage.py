"""What a server took from its prefix cache, as it says (docs: "Per-request truth"); the figures of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from contextpilot_core.tokens import MOST_TOKENS


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one request as the server reported them. None is unknown, which is not 0.

    A server that reports more cached tokens than the prompt has contradicts itself: then all of the prompt counts as
    cached, here and in all that is computed from it.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        """Bound the cached tokens by the prompt."""
        if self.cached_tokens is not None and self.prompt_tokens is not None:
            object.__setattr__(self, "cached_tokens", min(self.cached_tokens, self.prompt_tokens))

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
        """Return what is known after a ``later`` piece of the same answer: the last report counts, nothing is added."""
        return replace(self, **{name: value for name, value in vars(later).items() if value is not None})


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
    if isinstance(metadata := _get(response, "usage_metadata"), Mapping):  # LangChain's messages
        return Usage(
            prompt_tokens=_count(metadata.get("input_tokens")),
            completion_tokens=_count(metadata.get("output_tokens")),
            cached_tokens=_cached(_get(metadata.get("input_token_details"), "cache_read")),
        )
    if (raw := _get(response, "raw")) is not None:  # LlamaIndex's responses
        return read_usage(raw)
    usage, timings = _get(response, "usage"), _get(response, "timings")
    cached = _cached(_get(_get(usage, "prompt_tokens_details"), "cached_tokens"))
    prompt = _count(_get(usage, "prompt_tokens"))
    completion = _count(_get(usage, "completion_tokens"))
    cache_n, prompt_n = _cached(_get(timings, "cache_n")), _count(_get(timings, "prompt_n"))
    if prompt is None and cache_n is not None and prompt_n is not None:
        prompt = _count(cache_n + prompt_n)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(_get(timings, "predicted_n")) if completion is None else completion,
        cached_tokens=cache_n if cached is None else cached,
    )


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(value: Any) -> int | None:
    """Return a number of tokens that may be true, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def _cached(value: Any) -> int | None:
    """Return a number of cached tokens, None for what is none; one beyond all prompts is that of the whole prompt."""
    return _count(min(value, MOST_TOKENS)) if isinstance(value, int) else None
