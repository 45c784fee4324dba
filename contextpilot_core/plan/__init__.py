"""One request: checked, looked up, chosen, and what to send for it."""

from contextpilot_core.plan.choose import Order, choose, keep
from contextpilot_core.plan.lookup import ContextIndex, let_go, look_up
from contextpilot_core.plan.plan import BatchPlan, Plan
from contextpilot_core.plan.request import Job, checked_order, prepare

__all__ = [
    "BatchPlan",
    "ContextIndex",
    "Job",
    "Order",
    "Plan",
    "checked_order",
    "choose",
    "keep",
    "let_go",
    "look_up",
    "prepare",
]
