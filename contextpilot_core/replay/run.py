"""Replay a retrieval trace through the engine and a simulated prefix cache (docs: "Replay")."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contextpilot_core.checks import whole_number
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine import ReuseEngine
from contextpilot_core.errors import TraceError
from contextpilot_core.plan import BatchPlan, Plan
from contextpilot_core.replay.figures import reuse, upper_bound
from contextpilot_core.replay.simulated_cache import SimulatedCache
from contextpilot_core.replay.traces import Document, TraceItem
from contextpilot_core.types import ContextRequest

Mode = Literal["offline", "online", "window"]
Identity = Literal["id", "text"]
Progress = Callable[[int, int], None]
Watch = Callable[[Plan, int], None]


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """What a replay measured. Tokens are block tokens; ``reuse``, ``net_reuse``, ``upper_bound``, recall: fractions.

    build_seconds: time to plan the whole batch, or all windows (online: 0). plan_us_*: microseconds per plan (online)
    or per window, None offline. upper_bound: None above 20,000 contexts. recall: share of the known evidence that was
    sent, and that plain retrieval of as many documents would have sent; None when no evidence is known.
    """

    contexts: int
    tokens: int
    reused_tokens: int
    reuse: float
    note_tokens: int
    net_reuse: float
    upper_bound: float | None
    build_seconds: float
    plan_us_p50: float | None
    plan_us_p99: float | None
    peak_rss_mb: float | None
    recall: float | None
    recall_by_rank: float | None


def replay(
    trace: Sequence[TraceItem],
    corpus: Mapping[str, Document],
    config: EngineConfig,
    *,
    top_k: int = 15,
    mode: Mode = "offline",
    window: int = 32,
    identity: Identity = "id",
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> ReplayResult:
    """Plan every context of ``trace`` and count what a prefix cache of ``config.cache_tokens`` would reuse.

    ``mode``: "offline", all as one batch; "online", one after the other; "window", every ``window`` of them together.

    Contexts are cut to ``top_k`` ids, repeats dropped, empty ones skipped. ``config.kv_block`` rounds matched tokens
    down. Selection (``config.budget``) is part of ``config``; ``top_k`` is then the number of candidates. ``watch`` is
    told of every plan as it is sent, and of the tokens that were reused.

    Raises:
        TraceError: a document is not in the corpus, or has no text while ``identity="text"``.
        ConfigError: ``top_k`` or ``window`` is no positive number.
    """
    whole_number("top_k", top_k, "15 is usual")
    whole_number("window", window, "32 is usual")
    items = [replace(item, doc_ids=tuple(dict.fromkeys(item.doc_ids[:top_k]))) for item in trace]
    items = [item for item in items if item.doc_ids]
    body_of, weights = _bodies(items, corpus, identity)
    # Bodies weigh what the corpus says, and every other text (the notes) by the same rule.
    engine = ReuseEngine(config, token_counter=lambda text: weights.get(text) or max(1, len(text) // 4))
    requests = [
        ContextRequest(blocks=tuple([body_of[doc_id] for doc_id in item.doc_ids]), remember=False) for item in items
    ]
    cache = SimulatedCache(weights, capacity=config.cache_tokens)
    plans: list[Plan] = []
    times: list[float] = []
    reused: list[int] = []
    size = {"offline": len(requests) or 1, "online": 1, "window": window}[mode]
    for part in [requests[start : start + size] for start in range(0, len(requests), size)]:
        started = time.perf_counter()
        if mode == "online":
            batch = BatchPlan((engine.plan(**vars(part[0])),), (0,))
        else:
            batch = engine.plan_batch(part) if mode == "offline" else engine.plan_window(part)
        times.append(time.perf_counter() - started)
        for plan in batch.in_schedule():
            matched = cache.send([str(plan.request.blocks[position]) for position in plan.order])
            reused.append(matched // config.kv_block * config.kv_block)
            if progress is not None:
                progress(len(reused), len(items))
            if watch is not None:
                watch(plan, reused[-1])
        plans += batch.plans
    return _result(items, plans, sum(reused), weights, mode, times)


def _bodies(
    items: Sequence[TraceItem], corpus: Mapping[str, Document], identity: Identity
) -> tuple[dict[str, str], dict[str, int]]:
    """Return body by document id and tokens by body; with ``identity="id"`` the id itself is the body."""
    body_of: dict[str, str] = {}
    weights: dict[str, int] = {}
    for doc_id in dict.fromkeys(doc_id for item in items for doc_id in item.doc_ids):
        document = corpus.get(doc_id)
        if document is None:
            raise TraceError(f"document {doc_id!r} of the trace is in no corpus file; add its file with --corpus")
        if identity == "text" and document.text is None:
            raise TraceError(f"document {doc_id!r} has no text in the corpus; use --identity id")
        body = document.text if identity == "text" and document.text is not None else f"\0{doc_id}"
        body_of[doc_id] = body
        weights[body] = document.tokens
    return body_of, weights


def _result(
    items: Sequence[TraceItem],
    plans: Sequence[Plan],
    reused: int,
    weights: Mapping[str, int],
    mode: Mode,
    times: Sequence[float],
) -> ReplayResult:
    microseconds = [] if mode == "offline" else sorted(seconds * 1e6 for seconds in times)
    peak = _peak_rss_mb()  # before the bound, which needs memory of its own
    notes = sum(plan.report.note_tokens for plan in plans)
    number = {body: index for index, body in enumerate(weights)}
    sent = [[number[str(plan.request.blocks[position])] for position in plan.order] for plan in plans]
    tokens = sum(plan.report.block_tokens for plan in plans)
    bound = upper_bound(sent, list(weights.values()))
    recall, recall_by_rank = _recall(items, plans)
    return ReplayResult(
        contexts=len(items),
        tokens=tokens,
        reused_tokens=reused,
        reuse=reuse(reused, tokens),
        note_tokens=notes,
        net_reuse=reuse(reused - notes, tokens),
        upper_bound=None if bound is None else reuse(bound, tokens),
        build_seconds=0.0 if mode == "online" else sum(times),
        plan_us_p50=_quantile(microseconds, 0.5),
        plan_us_p99=_quantile(microseconds, 0.99),
        peak_rss_mb=peak,
        recall=recall,
        recall_by_rank=recall_by_rank,
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def _recall(items: Sequence[TraceItem], plans: Sequence[Plan]) -> tuple[float | None, float | None]:
    """Return the mean recall over the contexts whose evidence is known: as sent, and by rank alone."""
    sent, by_rank = [], []
    for item, plan in zip(items, plans, strict=True):
        if item.evidence:
            found = item.evidence.intersection([item.doc_ids[position] for position in plan.order])
            sent.append(len(found) / len(item.evidence))
            by_rank.append(len(item.evidence.intersection(item.doc_ids[: len(plan.order)])) / len(item.evidence))
    return (sum(sent) / len(sent), sum(by_rank) / len(by_rank)) if sent else (None, None)


def _peak_rss_mb() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
