"""Reuse on every dev trace: plain order, the paper's strategy, ours; offline, online, with notes, with selection."""

from typing import Any

from benchmarks.data import TRACES, corpus, trace
from contextpilot_core.config import EngineConfig
from contextpilot_core.replay import ReplayResult, replay

CACHE_TOKENS = 40_000
SELECTION = ("multihoprag.trace.bm25", "qasper_ev.trace.dense", "narrativeqa.trace.dense")


def measure() -> dict[str, Any]:
    """Replay every trace in every setting; only figures that are the same on every machine."""
    return {
        "cache_tokens": CACHE_TOKENS,
        "top_k": 15,
        "traces": {name: _trace(name) for name in TRACES},
        "selection": {name: _selection(name) for name in SELECTION},
    }


def _trace(name: str) -> dict[str, Any]:
    items, documents = trace(name), corpus(name)

    def run(mode: str, **fields: Any) -> ReplayResult:
        config = EngineConfig(**{"cache_tokens": CACHE_TOKENS, "note": "none", "kv_block": 1, **fields})
        return replay(items, documents, config, mode=mode)

    ours = run("offline")
    noted = run("online", note="compact", kv_block=16)
    return {
        "contexts": ours.contexts,
        "tokens": ours.tokens,
        "plain": run("online", strategy="none").reuse,
        "paper_offline_depth_first": run("offline", strategy="paper").reuse,
        "paper_offline_alg5": run("offline", strategy="paper", schedule="paper").reuse,
        "paper_online": run("online", strategy="paper").reuse,
        "greedy_offline": ours.reuse,
        "greedy_online": run("online").reuse,
        "greedy_online_unbounded": run("online", cache_tokens=None).reuse,
        "upper_bound": ours.upper_bound,
        "plain_kv16": run("online", strategy="none", kv_block=16).reuse,
        "online_kv16_compact_note_reuse": noted.reuse,
        "online_kv16_compact_note_net": noted.net_reuse,
        "offline_kv16_compact_note_net": run("offline", note="compact", kv_block=16).net_reuse,
    }


def _selection(name: str) -> dict[str, Any]:
    items, documents = trace(name), corpus(name)
    rows = {}
    for label, cache in (("cache_40000", CACHE_TOKENS), ("unbounded", None)):
        config = EngineConfig(cache_tokens=cache, note="none", kv_block=1, budget=15, pinned=12)
        result = replay(items, documents, config, top_k=20, mode="online")
        rows[label] = {"reuse": result.reuse, "recall": result.recall, "recall_by_rank": result.recall_by_rank}
    return rows
