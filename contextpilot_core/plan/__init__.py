"""One request: checked, looked up, chosen, and what to send for it."""

from contextpilot_core.plan.plan import BatchPlan, Plan

__all__ = ["BatchPlan", "Plan"]
