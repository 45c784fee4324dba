"""In which order many requests go, and which blocks each of them leads with."""

from contextpilot_core.clustering.orders import prefix_first

__all__ = ["prefix_first"]
