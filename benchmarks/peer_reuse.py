"""Reuse on every dev trace by the public contextpilot 0.5.0: same requests, same order of arrival, same cache."""

from dataclasses import asdict
from typing import Any

from rich.progress import track

from benchmarks import peer
from benchmarks.data import TRACES, contexts, corpus
from benchmarks.orders import Sent, faults
from benchmarks.scoring import CACHES, CURVES, KV_BLOCK, USUAL, curve, reuse_by_cache, share, steps

JOBS = {"offline": "batch", "online": "stream"}


def measure() -> dict[str, Any]:
    """Let it order every trace offline and online, and send that to the simulated cache."""
    return {
        "version": peer.VERSION,
        "traces": {name: {arm: _arm(name, job) for arm, job in JOBS.items()} for name in track(TRACES, "peer")},
    }


def _arm(name: str, job: str) -> dict[str, Any]:
    given, weights = contexts(name), {identity: document.tokens for identity, document in corpus(name).items()}
    answer = peer.run(job, contexts=given)
    if answer is None:
        return {"reuse": None}
    sent = [Sent(number, tuple(documents)) for number, documents, _ in answer["sent"]]
    notes = sum(max(1, len(note) // 4) for _, _, note in answer["sent"] if note)
    whole = steps(sent, weights, CACHES[USUAL], kv_block=KV_BLOCK)
    result = {
        "reuse": reuse_by_cache(sent, weights),
        "whole_kv_blocks": {
            "reuse": share(whole),
            "net": share(whole) - notes / sum(tokens for tokens, _ in whole),
            "note_tokens": notes,
        },
        "faults": asdict(faults(given, sent)),
        "errors": len(answer["errors"]),
        "first_error": answer["errors"][0] if answer["errors"] else None,
    }
    if name in CURVES:
        result["curve"] = curve(steps(sent, weights, CACHES[USUAL]))
    return result
