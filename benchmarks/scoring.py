"""One simulated cache for all: what it would reuse of requests that are sent in this order."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.orders import Sent
from contextpilot_core.replay.simulated_cache import SimulatedCache

CACHES: dict[str, int | None] = {"10000": 10_000, "40000": 40_000, "160000": 160_000, "unbounded": None}
"""Sizes in tokens."""
USUAL = "40000"
KV_BLOCK = 16
"""Tokens in a KV block, where whole ones are counted."""
CURVES = ("multihoprag.trace.bm25", "narrativeqa.trace.dense")
"""Traces that are also shown over time."""
POINTS = 60

Steps = list[tuple[int, int]]
"""Tokens sent and tokens reused, for each request in the order of sending."""


def steps(sent: Sequence[Sent], weights: Mapping[str, int], capacity: int | None, *, kv_block: int = 1) -> Steps:
    """Send the requests to a cache of ``capacity`` tokens, which counts whole KV blocks."""
    cache = SimulatedCache(weights, capacity=capacity)
    return [
        (
            sum(weights[document] for document in request.documents),
            cache.send(request.documents) // kv_block * kv_block,
        )
        for request in sent
    ]


def reuse_by_cache(sent: Sequence[Sent], weights: Mapping[str, int]) -> dict[str, float]:
    """Return the reused share of the tokens for every size of cache."""
    return {name: share(steps(sent, weights, capacity)) for name, capacity in CACHES.items()}


def share(taken: Steps) -> float:
    """Return the reused share of the tokens that were sent."""
    return sum(reused for _, reused in taken) / max(1, sum(tokens for tokens, _ in taken))


def curve(taken: Steps) -> dict[str, Any]:
    """Return requests, tokens sent and tokens reused, all from the start to each of some points on the way."""
    total = {"requests": [0], "tokens": [0], "reused": [0]}
    for point in range(1, POINTS + 1):
        done = taken[: len(taken) * point // POINTS]
        total["requests"].append(len(done))
        total["tokens"].append(sum(tokens for tokens, _ in done))
        total["reused"].append(sum(reused for _, reused in done))
    return total
