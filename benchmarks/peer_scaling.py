"""Time and memory of the public contextpilot 0.5.0 on the contexts of `scaling`, as far as it gets in a given time."""

from typing import Any

from rich.progress import track

from benchmarks import peer
from benchmarks.data import prose, synthetic_text, zipf_contexts
from benchmarks.scaling import AROUND, CHECKPOINTS, LARGE, SHAPES, percentiles

LIMIT_SECONDS = 300
"""For one batch; after one that takes longer, no larger one is tried."""
LATENCY_CPU_SECONDS = 120
"""For all requests one after the other."""


def measure() -> dict[str, Any]:
    """Let it build ever larger batches; then plan one request after the other."""
    batches: dict[str, Any] = {}
    for size in track(SHAPES, "peer, scaling"):
        texts = [synthetic_text(block) for block in range(SHAPES[size][0])]
        contexts = [[texts[block] for block in context] for context in zipf_contexts(size, *SHAPES[size])]
        batches[str(size)] = peer.run("build", limit=LIMIT_SECONDS, contexts=contexts)
        if batches[str(size)] is None:
            break
    return {"version": peer.VERSION, "limit_seconds": LIMIT_SECONDS, "plan_batch": batches, "latency": _latency()}


def _latency() -> dict[str, Any]:
    texts = [prose(block) for block in range(LARGE[0])]
    contexts = [[texts[block] for block in context] for context in zipf_contexts(CHECKPOINTS[-1] + AROUND, *LARGE)]
    timed = {"checkpoints": CHECKPOINTS, "around": AROUND, "cpu_seconds": LATENCY_CPU_SECONDS}
    answer = peer.run("latency", contexts=contexts, **timed)
    return {
        "live": {live: percentiles(times) for live, times in answer["times_us"].items()},
        "planned": answer["planned"],
        "error": answer["error"],
    }
