"""Time and memory of ``plan_batch``, and the latency of one plan against the number of live contexts.

Latencies are CPU time, which other work on the machine changes less; a batch is timed both ways.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.data import prose, synthetic_text, zipf_contexts
from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.clustering.orders import prefix_first
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.types import ContextRequest

SMALL, LARGE = (3_000, 200), (20_000, 1_000)
SHAPES = {size: SMALL if size <= 12_000 else LARGE for size in (2_000, 4_000, 8_000, 12_000, 25_000, 50_000, 100_000)}
"""contexts -> (blocks, topics)"""
CHECKPOINTS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 100_000)
AROUND = 500
"""Requests that are timed after every checkpoint."""


def measure() -> dict[str, Any]:
    """Run every part in a process of its own, so that peak memory belongs to it."""
    return {
        "plan_batch": {str(size): _apart("batch", size) for size in track(SHAPES, "scaling")},
        "match_and_order": {str(size): _apart("match", size) for size in (2_000, 100_000)},
        "plan": _apart("plan", 2_000),
        "latency": _apart("latency", CHECKPOINTS[-1]),
    }


def _apart(part: str, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scaling", part, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def batch(size: int) -> dict[str, Any]:
    """Plan ``size`` contexts as one batch."""
    blocks, topics = SHAPES[size]
    texts = [synthetic_text(block) for block in range(blocks)]
    requests = [
        ContextRequest(blocks=tuple([texts[block] for block in context]), remember=False)
        for context in zipf_contexts(size, blocks, topics)
    ]
    before = _peak_mb()
    engine = ReuseEngine()
    started, before_cpu = time.perf_counter(), time.process_time()
    plans = engine.plan_batch(requests)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - before_cpu
    assert len(plans) == size
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_mb": _peak_mb(), "rss_before_mb": before}


def match(size: int) -> dict[str, Any]:
    """Match and order on interned ids, with ``size`` live contexts in an unbounded view."""
    blocks, topics = SHAPES[size]
    table = BlockTable()
    ids = [table.intern(str(block).encode(), lambda: 85) for block in range(blocks)]
    view = CacheView(table, capacity=None, max_requests=size + 1)
    times = []
    for number, context in enumerate(zipf_contexts(size + 5_000, blocks, topics)):
        wanted = tuple([ids[block] for block in context])
        started = time.process_time()
        order = prefix_first(wanted, view.longest((), Wanted(wanted, EngineConfig().max_visits)))
        elapsed = (time.process_time() - started) * 1e6
        if number < size:
            view.admit(order, str(number))
        else:
            times.append(elapsed)
    return {"live_contexts": len(view), **percentiles(times)}


def plan(size: int) -> dict[str, Any]:
    """Plan one request after the other: 15 blocks of 340 characters, no history; then render its messages."""
    blocks, topics = SHAPES[size]
    texts = [prose(block) for block in range(blocks)]
    engine = ReuseEngine()
    planned, rendered = [], []
    for context in zipf_contexts(size, blocks, topics):
        chosen = [texts[block] for block in context]
        started = time.process_time()
        result = engine.plan(chosen, query="What does it say?", remember=False)
        planned.append((time.process_time() - started) * 1e6)
        assert result.messages
        rendered.append((time.process_time() - started) * 1e6)
    return {"plan": percentiles(planned), "plan_and_render": percentiles(rendered)}


def latency(size: int) -> dict[str, Any]:
    """Time ``engine.plan`` against the number of live contexts, in a cache that keeps them all."""
    texts = [prose(block) for block in range(LARGE[0])]
    engine = ReuseEngine(EngineConfig(cache_tokens=None, max_requests=size + AROUND))
    times = []
    for context in zipf_contexts(size + AROUND, *LARGE):
        chosen = [texts[block] for block in context]
        started = time.process_time()
        engine.plan(chosen, remember=False)
        times.append((time.process_time() - started) * 1e6)
    return {str(live): percentiles(times[live : live + AROUND]) for live in CHECKPOINTS}


def percentiles(times: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(times)
    return {f"p{share}_us": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)}


def _peak_mb() -> float:
    """Of this program alone: on Linux, ``ru_maxrss`` begins with that of the process which has started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


PARTS = {"batch": batch, "match": match, "plan": plan, "latency": latency}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(PARTS[sys.argv[1]](int(sys.argv[2]))))
