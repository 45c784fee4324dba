"""Reuse on every dev trace, by cache size: plain order, frequency, GGR, the paper's strategy, ours."""

from typing import Any

from rich.progress import track

from benchmarks.data import TRACES, contexts, corpus, trace
from benchmarks.orders import by_frequency, by_greedy_groups, in_arrival
from benchmarks.scoring import CACHES, CURVES, KV_BLOCK, USUAL, Steps, curve, reuse_by_cache, share, steps
from contextpilot_core.config import EngineConfig
from contextpilot_core.replay.run import ReplayResult, replay

WINDOWS = (8, 32, 128)
SELECTION = ("multihoprag.trace.bm25", "qasper_ev.trace.dense", "narrativeqa.trace.dense")
MODES: dict[str, dict[str, Any]] = {
    "offline": {"mode": "offline"},
    "online": {"mode": "online"},
    **{f"window_{size}": {"mode": "window", "window": size} for size in WINDOWS},
}
ENGINE_ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper_offline": ("offline", {"strategy": "paper"}),
    "paper_offline_alg5": ("offline", {"strategy": "paper", "schedule": "paper"}),
    "paper_online": ("online", {"strategy": "paper"}),
    **{f"ours_{mode}": (mode, {}) for mode in MODES},
}
"""Arms of the engine: mode, and what differs from its usual configuration."""


def measure() -> dict[str, Any]:
    """Replay every trace in every setting; only figures that are the same on every machine."""
    return {
        "top_k": 15,
        "caches": list(CACHES),
        "traces": {name: _trace(name) for name in track(TRACES, "reuse")},
        "curves": {name: _curves(name) for name in CURVES},
        "selection": {name: _selection(name) for name in SELECTION},
    }


def _trace(name: str) -> dict[str, Any]:
    given, weights = contexts(name), {identity: document.tokens for identity, document in corpus(name).items()}
    arms = {
        "plain": reuse_by_cache(in_arrival(given), weights),
        "frequency": reuse_by_cache(by_frequency(given), weights),
        "ggr": reuse_by_cache(by_greedy_groups(given, weights), weights),
    }
    for arm, (mode, fields) in ENGINE_ARMS.items():
        arms[arm] = {label: _replayed(name, mode, cache=cache, **fields).reuse for label, cache in CACHES.items()}
    usual = _replayed(name, "offline")
    return {
        "contexts": usual.contexts,
        "tokens": usual.tokens,
        "upper_bound": usual.upper_bound,
        "arms": arms,
        "whole_kv_blocks": _net(name, share(steps(in_arrival(given), weights, CACHES[USUAL], kv_block=KV_BLOCK))),
    }


def _net(name: str, plain: float) -> dict[str, Any]:
    """Whole KV blocks, and a compact note wherever blocks were moved; net: less the tokens of the notes."""
    rows: dict[str, Any] = {"plain": {"reuse": plain, "net": plain, "note_tokens": 0}}
    for mode in MODES:
        noted = _replayed(name, mode, note="compact", kv_block=KV_BLOCK)
        rows[f"ours_{mode}"] = {"reuse": noted.reuse, "net": noted.net_reuse, "note_tokens": noted.note_tokens}
    return rows


def _curves(name: str) -> dict[str, Any]:
    given, weights = contexts(name), {identity: document.tokens for identity, document in corpus(name).items()}
    sent = {"plain": in_arrival(given), "ggr": by_greedy_groups(given, weights)}
    taken = {arm: steps(requests, weights, CACHES[USUAL]) for arm, requests in sent.items()}
    for arm in ("ours_online", "ours_window_32", "ours_offline"):
        seen: Steps = []
        _replayed(name, ENGINE_ARMS[arm][0], seen=seen)
        taken[arm] = seen
    return {arm: curve(each) for arm, each in taken.items()}


def _replayed(
    name: str, mode: str, *, cache: int | None = CACHES[USUAL], seen: Steps | None = None, **fields: Any
) -> ReplayResult:
    config = EngineConfig(**{"cache_tokens": cache, "note": "none", "kv_block": 1, **fields})
    watch = None if seen is None else lambda plan, reused: seen.append((plan.report.block_tokens, reused))
    return replay(trace(name), corpus(name), config, watch=watch, **MODES[mode])


def _selection(name: str) -> dict[str, Any]:
    rows = {}
    for label in (USUAL, "unbounded"):
        config = EngineConfig(cache_tokens=CACHES[label], note="none", kv_block=1, budget=15, pinned=12)
        result = replay(trace(name), corpus(name), config, top_k=20, mode="online")
        rows[label] = {"reuse": result.reuse, "recall": result.recall, "recall_by_rank": result.recall_by_rank}
    return rows
