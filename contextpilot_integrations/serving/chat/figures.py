"""The figures of one answered question, for the events of frameworks: numbers and names of our own, never a text."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TurnFigures:
    """What was predicted and reported for one prompt, and how its engine does.

    prompt_tokens, predicted, reported: tokens, the latter two cached ones, as in `Observation`; None is unknown.
    plan_seconds: time to plan and render. hit_rate: cached share of this prompt, 0 to 1. source: what the prediction
    relied on. drift, live_contexts, evictions: of the engine, as in `EngineStats`.
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
