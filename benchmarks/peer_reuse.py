"""Reuse on every dev trace by the public contextpilot 0.5.0: same requests, same order of arrival, same cache."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.progress import track

from benchmarks import peer
from benchmarks.data import TRACES, contexts, corpus
from benchmarks.orders import Sent, faults
from benchmarks.scoring import CACHES, CURVES, KV_BLOCK, USUAL, Steps, curve, reuse_by_cache, share, steps

WINDOWS = (8, 32, 128)
Given = Sequence[Sequence[str]]
Weights = Mapping[str, int]
Figures = dict[str, Any]


def measure() -> Figures:
    """Let it order every trace in every way, and send that to the simulated cache."""
    return {"version": peer.VERSION, "traces": {name: arms(name) for name in track(TRACES, "peer")}}


def arms(name: str) -> Figures:
    """Return the figures of one trace: as a batch, one by one, the same told of evictions, and in windows."""
    given, weights = contexts(name), {identity: document.tokens for identity, document in corpus(name).items()}
    online = _arm(name, given, weights, peer.run("stream", contexts=given))
    result = {
        "offline": _arm(name, given, weights, peer.run("batch", contexts=given)),
        "online": online,
        "online_synced": _synced(name, given, weights, online),
    }
    for size in WINDOWS:
        answer = peer.run("windows", contexts=given, size=size)
        result[f"window_{size}"] = _arm(name, given, weights, answer)
    return result


def _synced(name: str, given: Given, weights: Weights, online: Figures) -> Figures:
    """Return the figures of the pilot that hears what its cache lost, so that every size of cache is a run of its own.

    An unbounded one loses nothing: that is ``online``. All but reuse and errors is of the usual cache.
    """
    used = {document: weights[document] for context in given for document in context}
    answers = {
        cache: peer.run("synced_stream", contexts=given, weights=used, capacity=capacity)
        for cache, capacity in CACHES.items()
        if capacity is not None
    }
    if None in answers.values() or online["reuse"] is None:
        return {"reuse": None}
    taken = {cache: steps(_sent(answer), weights, CACHES[cache]) for cache, answer in answers.items()}
    for cache, answer in answers.items():
        assert answer["reused"] == _reused(taken[cache]), "the cache beside the pilot is not the simulated one"
    shares = {cache: share(each) for cache, each in taken.items()}
    errors = {cache: len(answer["errors"]) for cache, answer in answers.items()}
    return {
        **_arm(name, given, weights, answers[USUAL]),
        "reuse": {**shares, "unbounded": online["reuse"]["unbounded"]},
        "errors_by_cache": {**errors, "unbounded": online["errors"]},
    }


def _arm(name: str, given: Given, weights: Weights, answer: Figures | None) -> Figures:
    if answer is None:
        return {"reuse": None}
    sent = _sent(answer)
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


def _sent(answer: Figures) -> list[Sent]:
    return [Sent(number, tuple(documents)) for number, documents, _ in answer["sent"]]


def _reused(taken: Steps) -> int:
    return sum(reused for _, reused in taken)
