"""Who wants to know what an engine does: metrics, and whatever else counts or logs."""

from typing import Protocol

from contextpilot_core.plan import Plan
from contextpilot_core.types import Observation


class Observer(Protocol):
    """Told after the fact, in the caller's thread and without any lock; it must not raise, nor take long."""

    def planned(self, plan: Plan, seconds: float) -> None:
        """Take note of a plan, and how long planning took (of a batch: each plan's share)."""

    def observed(self, plan: Plan, observation: Observation) -> None:
        """Take note of a response: cached tokens as predicted and as reported."""
