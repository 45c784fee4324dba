"""Time that the public contextpilot 0.5.0 takes for one request, against the number of live ones, as in `scaling`."""

from typing import Any

from benchmarks import peer
from benchmarks.data import prose, zipf_contexts
from benchmarks.scaling import AROUND, CHECKPOINTS, LARGE, percentiles

LIMIT_CPU_SECONDS = 240
"""For all requests, one after the other."""


def measure() -> dict[str, Any]:
    """Send it one request after the other until it raises, or the time is over."""
    texts = [prose(block) for block in range(LARGE[0])]
    contexts = [[texts[block] for block in context] for context in zipf_contexts(CHECKPOINTS[-1] + AROUND, *LARGE)]
    timed = {"checkpoints": CHECKPOINTS, "around": AROUND, "cpu_seconds": LIMIT_CPU_SECONDS}
    answer = peer.run("latency", contexts=contexts, **timed)
    live = {live: percentiles(times) for live, times in answer["times_us"].items()}
    return {"version": peer.VERSION, "live": live, "planned": answer["planned"], "error": answer["error"]}
