"""Time and memory of the public contextpilot 0.5.0 on the contexts of `scaling`, as far as it gets within limits."""

from typing import Any

from rich.progress import track

from benchmarks import peer
from benchmarks.data import synthetic_text, zipf_contexts
from benchmarks.scaling import SHAPES

LIMIT_SECONDS = 600
LIMIT_GB = 16
"""For one batch; after one that takes longer, or needs more memory, no larger one is tried."""


def measure() -> dict[str, Any]:
    """Let it build ever larger batches."""
    batches: dict[str, Any] = {}
    for size in track(SHAPES, "peer, scaling"):
        texts = [synthetic_text(block) for block in range(SHAPES[size][0])]
        contexts = [[texts[block] for block in context] for context in zipf_contexts(size, *SHAPES[size])]
        done = peer.run("build", limit=LIMIT_SECONDS, contexts=contexts, memory_gb=LIMIT_GB)
        batches[str(size)] = done or {"error": "too slow"}
        if "error" in batches[str(size)]:
            break
    return {
        "version": peer.VERSION,
        "limit_seconds": LIMIT_SECONDS,
        "limit_gb": LIMIT_GB,
        "plan_batch": batches,
    }
