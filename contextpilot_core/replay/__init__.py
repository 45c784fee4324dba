"""A retrieval trace through the engine and a simulated prefix cache."""

from contextpilot_core.replay.run import Identity, Mode, ReplayResult, replay
from contextpilot_core.replay.simulated_cache import SimulatedCache
from contextpilot_core.replay.traces import Document, TraceItem, load_corpus, load_trace

__all__ = [
    "Document",
    "Identity",
    "Mode",
    "ReplayResult",
    "SimulatedCache",
    "TraceItem",
    "load_corpus",
    "load_trace",
    "replay",
]
