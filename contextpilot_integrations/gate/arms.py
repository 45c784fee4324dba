"""The arms of an evaluation: the same question and documents, sent in different ways, in the product's own layout."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextpilot_core import EngineConfig, ReuseEngine, estimate_tokens
from contextpilot_core.config import NoteStyle
from contextpilot_core.prompt import context_message_text, order_note
from contextpilot_integrations.gate.cases import Case

Messages = Sequence[Mapping[str, Any]]

ORIGINAL, CLOSED_BOOK, REORDERED = "original", "no documents", "reordered"
COMPACT, FULL, TOP_3 = "reordered + compact note", "reordered + full note", "reordered + top-3 note"
NOTE_ALONE, RANDOM = "note alone", "random order"
ORDER_ARMS = (ORIGINAL, NOTE_ALONE, REORDERED, COMPACT, FULL, TOP_3, RANDOM, CLOSED_BOOK)
"""How documents are ordered; the first is the baseline, the last shows what the documents are worth at all."""

REPEATED, HINTED, DROPPED = "repeated in full", "location hints", "dropped silently"
DEDUP_ARMS = (REPEATED, HINTED, DROPPED, CLOSED_BOOK)
"""What becomes of documents that the conversation already shows; the first and the last as in `ORDER_ARMS`."""

PLAIN = EngineConfig(strategy="none", note="none", dedup=False)
DEDUP = EngineConfig(strategy="none", note="none")


def order_prompts(case: Case, order: Sequence[int], *, instructions: str, seed: int) -> dict[str, Messages]:
    """Return the prompts of `ORDER_ARMS`; ``order`` holds positions of ``case.documents``, in the engine's order."""
    by_rank = tuple(range(len(case.documents)))
    order = tuple(order)

    def prompt(places: tuple[int, ...], style: NoteStyle = "none", best: int | None = None) -> Messages:
        plan = ReuseEngine(PLAIN).plan(case.documents, query=case.query, instructions=instructions, order=places)
        labels = [places.index(rank) + 1 for rank in by_rank[:best]]
        text = context_message_text(plan.context.text, order_note(style, labels, estimate_tokens), case.query)
        return (*plan.messages[:-1], {"role": "user", "content": text})

    return {
        ORIGINAL: prompt(by_rank),
        NOTE_ALONE: prompt(by_rank, "compact"),
        REORDERED: prompt(order),
        COMPACT: prompt(order, "compact"),
        FULL: prompt(order, "full"),
        TOP_3: prompt(order, "compact", 3),
        RANDOM: prompt(_shuffled(by_rank, f"{seed}:{case.key}")),
        CLOSED_BOOK: ReuseEngine(PLAIN).plan((), query=case.query, instructions=instructions).messages,
    }


def dedup_prompts(case: Case, *, instructions: str) -> dict[str, Messages]:
    """Return the prompts of `DEDUP_ARMS`; empty when the engine finds no document that the conversation shows."""
    engine, history = _history(case, PLAIN, instructions)
    repeated = engine.plan(case.documents, query=case.query, messages=history)
    engine, history = _history(case, DEDUP, instructions)
    hinted = engine.plan(case.documents, query=case.query, messages=history)
    shown = {hint.position for hint in hinted.hints}
    if not shown:
        return {}
    rest = [text for position, text in enumerate(case.documents) if position not in shown]
    dropped = engine.plan(rest, query=case.query, messages=history)
    bare = replace(case, documents=(), earlier=tuple(replace(turn, documents=()) for turn in case.earlier))
    _, bare_history = _history(bare, PLAIN, instructions)
    return {
        REPEATED: repeated.messages,
        HINTED: hinted.messages,
        DROPPED: dropped.messages,
        CLOSED_BOOK: ReuseEngine(PLAIN).plan((), query=case.query, messages=bare_history).messages,
    }


def _history(case: Case, config: EngineConfig, instructions: str) -> tuple[ReuseEngine, list[dict[str, Any]]]:
    """Return the messages of the earlier turns as an engine sent them, and that engine."""
    engine, history = ReuseEngine(config), list[dict[str, Any]]()
    for turn in case.earlier:
        plan = engine.plan(turn.documents, query=turn.query, instructions=instructions, messages=history)
        history = [*plan.messages, {"role": "assistant", "content": turn.answer}]
    return engine, history


def _shuffled(order: tuple[int, ...], seed: str) -> tuple[int, ...]:
    """Return another order than the one given, the same for the same seed."""
    draw, places = random.Random(seed), list(order)
    while tuple(places) == order and len(order) > 1:
        draw.shuffle(places)
    return tuple(places)
