"""What planning costs where there is next to nothing to gain: contexts that hardly overlap."""

from typing import Any

from rich.progress import track

from benchmarks.data import contexts, corpus, trace
from benchmarks.scoring import CACHES, KV_BLOCK, USUAL
from contextpilot_core.config import EngineConfig
from contextpilot_core.replay.run import ReplayResult, replay

TRACES = ("hotpotqa.trace.bm25", "hotpotqa.trace.dense", "musique.trace.bm25", "musique.trace.dense")


def measure() -> dict[str, Any]:
    """Plan one request after the other, with texts and notes, in whole KV blocks."""
    return {"traces": {name: _trace(name) for name in track(TRACES, "overhead")}}


def _trace(name: str) -> dict[str, Any]:
    plain, ours = _replayed(name, strategy="none"), _replayed(name, strategy="greedy")
    sent = [document for context in contexts(name) for document in context]
    return {
        "contexts": ours.contexts,
        "tokens": ours.tokens,
        "met_before": 1 - len(set(sent)) / len(sent),
        "plain": plain.net_reuse,
        "ours": ours.reuse,
        "ours_net": ours.net_reuse,
        "note_tokens": ours.note_tokens,
        "plan_us_p50": ours.plan_us_p50,
        "plan_us_p99": ours.plan_us_p99,
    }


def _replayed(name: str, **fields: Any) -> ReplayResult:
    config = EngineConfig(cache_tokens=CACHES[USUAL], note="compact", kv_block=KV_BLOCK, **fields)
    return replay(trace(name), corpus(name), config, mode="online", identity="text")
