"""The figures of one answered question, for the events of frameworks: numbers and names of our own, never a text."""

from dataclasses import dataclass
from typing import Literal

from contextpilot_core import Plan, PromptTokens, ReuseEngine, Served
from contextpilot_integrations.serving.chat.usage import Usage


@dataclass(frozen=True, kw_only=True)
class TurnFigures:
    """What was predicted and reported for one prompt (tokens; None is unknown), and how its engine does.

    plan_seconds: time to plan and render. hit_rate: cached share of this prompt, 0 to 1. source: what the prediction
    relied on. drift, live_contexts, evictions: of the engine, as in `EngineStats`.
    """

    request_id: str
    plan_seconds: float
    prompt_tokens: int | None
    predicted_tokens: int | None
    reported_tokens: int | None
    hit_rate: float | None
    source: Literal["events", "estimate"]
    drift: float | None
    live_contexts: int
    evictions: int


def observe(
    engine: ReuseEngine,
    plan: Plan,
    usage: Usage,
    *,
    plan_seconds: float,
    tokens: PromptTokens | None = None,
    cache_salt: str | None = None,
) -> TurnFigures:
    """Tell the engine what the server reported for a plan, and the prompt's tokens and salt; return the figures."""
    served = Served(
        prompt_tokens=usage.prompt_tokens, cached_tokens=usage.cached_tokens, tokens=tokens, cache_salt=cache_salt
    )
    observation = engine.observe(plan, served)
    stats = engine.stats()
    return TurnFigures(
        request_id=plan.request_id,
        plan_seconds=plan_seconds,
        prompt_tokens=usage.prompt_tokens,
        predicted_tokens=observation.predicted,
        reported_tokens=observation.reported,
        hit_rate=usage.hit_rate,
        source=observation.source,
        drift=stats.drift,
        live_contexts=stats.live_requests,
        evictions=stats.evictions,
    )
