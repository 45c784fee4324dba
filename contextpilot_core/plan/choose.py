"""Decide one request: what is sent, in which order, with which note. Reads state, never writes it.

Reads texts and asks the counter, so nobody holds a lock around it: every question about state takes it by itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from contextpilot_core.cache import Path
from contextpilot_core.clustering import Lead, prefix_first
from contextpilot_core.config import EngineConfig
from contextpilot_core.plan.lookup import ContextIndex
from contextpilot_core.plan.request import Job
from contextpilot_core.prompt import order_note
from contextpilot_core.tokens import TokenCounter

Order = tuple[int, ...]
"""Positions in the caller's list, in the order of the prompt."""


def choose(job: Job, index: ContextIndex, config: EngineConfig, count: TokenCounter, lead: Lead | None = None) -> None:
    """Select and order; blocks are moved only when that pays after the note (docs: "The note").

    ``lead`` is a batch's proposal; it stands unless more is cached in another order right now. For a batch, bodies
    count as a whole: looking for runs that span hints replace would cost more than the rest of the planning.
    """
    decide, measure = partial(_decide, job), partial(_measure, job, index, config, lead is None)
    by_rank, optional, allowance = _selection(job, config)
    found = index.lead(job.head, tuple(job.ids.values()), optional, allowance)
    if lead is not None and _worth(job, index, found) <= _worth(job, index, lead):
        found = lead
    plain, block = measure(by_rank), config.kv_block
    moved_order = _moved_order(job, found.blocks, by_rank, config)
    if moved_order == by_rank:
        why = (
            "the retrieval order already follows the cache" if found.blocks else "nothing that is cached fits in front"
        )
        return decide(by_rank, plain, f"kept the retrieval order: {why}")
    moved = measure(moved_order)
    worth = max(moved.tokens, found.promise)
    numbers = f"{worth} tokens from the cache instead of {plain.tokens}, a KV block is {block}"
    if worth <= max(plain.tokens, block):
        return decide(by_rank, plain, f"kept the retrieval order: {numbers}")
    if moved_order == tuple(sorted(moved_order)):  # other documents (selection), but by rank: no note is needed
        return decide(moved_order, moved, f"selected what is cached: {numbers}")
    note = order_note(config.note, _labels_by_rank(job, moved_order), count)
    note_tokens = count(note) if note else 0
    numbers += f", the note costs {note_tokens}" if note_tokens else ""
    silent = config.note != "none" and not note  # the note does not fit its limit: never reorder without one
    if silent or worth - note_tokens <= max(plain.tokens, block):
        return decide(by_rank, plain, f"kept the retrieval order: {numbers}")
    return decide(moved_order, moved, f"moved blocks: {numbers}", (note, note_tokens))


def keep(job: Job, index: ContextIndex, config: EngineConfig, count: TokenCounter, order: Order) -> None:
    """Take an order that was decided elsewhere, with the note that it had there."""
    note = None
    if order != tuple(sorted(order)):
        text = order_note(config.note, _labels_by_rank(job, order), count)
        note = (text, count(text) if text else 0)
    measured = _measure(job, index, config, True, order)
    _decide(job, order, measured, "kept the order in which it was sent before", note)


class _Measured(NamedTuple):
    """What is cached of an order: blocks of its ``context``, their tokens in whole KV blocks, those of the prefix."""

    context: Path
    blocks: int
    tokens: int
    prefix_tokens: int


def _measure(job: Job, index: ContextIndex, config: EngineConfig, without_spans: bool, order: Order) -> _Measured:
    """Return what is cached of an order, ``without_spans``: less the runs that span hints replace (docs: rule 3)."""
    context, head = job.leading(order), job.head
    cached_in_all = index.cached_blocks(head + context)
    cached = max(0, cached_in_all - len(head))
    tokens = sum([job.tokens[position] for position in order[:cached]])
    prefix_tokens = tokens + (job.head_tokens if cached_in_all >= len(head) else index.tokens(head[:cached_in_all]))
    if without_spans and config.dedup and config.span_dedup and cached and cached + bool(job.visible.sources) > 1:
        tokens -= job.sections.replaced_tokens(order, cached)
    return _Measured(context, cached, tokens // config.kv_block * config.kv_block, prefix_tokens)


def _decide(job: Job, order: Order, measured: _Measured, reason: str, note: tuple[str, int] | None = None) -> None:
    """Write the decision down; ``note``: its text and tokens when blocks were moved, None when they were not."""
    job.order, job.reason, job.moved = order, reason, note is not None
    job.note, job.note_tokens = note or ("", 0)
    job.context, job.cached_blocks, job.expected_tokens, job.prefix_tokens = measured
    job.block_tokens = sum([job.tokens[position] for position in order if position in job.ids])


def _worth(job: Job, index: ContextIndex, lead: Lead) -> int:
    """Return the tokens that following a lead saves: those cached now, or those it promises."""
    return max(lead.promise, index.cached_tokens(job.head, lead.blocks))


def _selection(job: Job, config: EngineConfig) -> tuple[Order, frozenset[int], int]:
    """Return the positions that plain retrieval would send, by rank, and which ids of others may take whose places."""
    positions = job.positions
    if config.budget is None or config.pinned is None or len(positions) <= config.budget:
        return positions, frozenset(), 0
    optional = frozenset(job.ids[position] for position in positions[config.pinned :] if position in job.ids)
    return positions[: config.budget], optional, config.budget - config.pinned


def _moved_order(job: Job, lead: Path, by_rank: Order, config: EngineConfig) -> Order:
    first = _positions(job, lead)
    if len(by_rank) == len(job.positions):
        return prefix_first(by_rank, first)
    # Selection: the pinned ones and the lead stay, other places go to the best ranks (docs: "Selection").
    kept = set(by_rank[: config.pinned]).union(first)
    for position in job.positions:
        if len(kept) >= len(by_rank):
            break
        kept.add(position)
    return prefix_first([position for position in job.positions if position in kept], first)


def _positions(job: Job, lead: Path) -> list[int]:
    """Return the positions that hold the blocks of ``lead``, each once."""
    by_block = dict(zip(job.ids.values(), job.ids, strict=True))
    if len(by_block) == len(job.ids):
        return [by_block[block] for block in dict.fromkeys(lead) if block in by_block]
    held: dict[int, list[int]] = {}  # with ``dedup=False`` a block may stand at several positions
    for position, block in job.ids.items():
        held.setdefault(block, []).append(position)
    return [held[block].pop(0) for block in lead if held.get(block)]


def _labels_by_rank(job: Job, order: Sequence[int]) -> list[int]:
    """Return the labels of what is sent or hinted at, best rank first; unlabelled hints have none."""
    labels = dict(zip(order, job.sections.labels(order), strict=True))
    by_rank = [labels.get(position) for position in job.positions]
    return [label for label in by_rank if label is not None]
