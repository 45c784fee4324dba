"""Who wants to know what an engine does: metrics, and whatever else counts or logs."""

from collections.abc import Callable
from typing import Protocol

from contextpilot_core.plan import Plan
from contextpilot_core.types import EngineStats, Observation


class Observer(Protocol):
    """One per engine; told after the fact, in the caller's thread, without any lock. Must not raise, nor take long."""

    def attached(self, stats: Callable[[], EngineStats]) -> None:
        """Take note of the engine: ``stats`` is what it offers. Told once, when the engine is made."""

    def planned(self, plan: Plan, seconds: float) -> None:
        """Take note of a plan, and how long planning took (of a batch: each plan's share)."""

    def observed(self, plan: Plan, observation: Observation) -> None:
        """Take note of a response: cached tokens as predicted and as reported."""
