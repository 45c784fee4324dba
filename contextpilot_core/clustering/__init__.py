"""In which order many requests go, and which blocks each of them leads with."""

from contextpilot_core.clustering.arrange import arrange, group, leads, schedule
from contextpilot_core.clustering.families import cached_families
from contextpilot_core.clustering.orders import keep_session_order, prefix_first
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.paper.trees import PaperTrees
from contextpilot_core.clustering.values import Arranged, Lead

__all__ = [
    "Arranged",
    "ContextTree",
    "Lead",
    "PaperTrees",
    "arrange",
    "cached_families",
    "group",
    "keep_session_order",
    "leads",
    "prefix_first",
    "schedule",
]
