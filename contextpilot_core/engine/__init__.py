"""The engine: its namespaces, batches and windows behind one lock."""

from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.engine.observer import Observer
from contextpilot_core.engine.scheduler import WindowScheduler

__all__ = ["Observer", "ReuseEngine", "WindowScheduler"]
