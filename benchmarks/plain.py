"""Answers to plain questions with a real model: is the engine's order safe, a note, which of its wordings, a hint?

Questions are chosen by whether the model answers over the answering passage alone, which is no arm. Scores, and how
to end a run and go on: as in `benchmarks.quality`.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.plain_questions import GROUP_SIZE, REQUESTS, RETRIEVED
from benchmarks.plain_trials import (
    ALONE,
    BEST,
    CACHE_TOKENS,
    GROUPS,
    INSTRUCTIONS,
    LINE,
    LINE_TEXT,
    OTHER,
    SEED,
    WORDED_ARMS,
    WORDS,
    Asked,
    trials,
)
from contextpilot_integrations.gate.arms import (
    CLOSED_BOOK,
    COMPACT,
    DEDUP_ARMS,
    FULL,
    ORIGINAL,
    REORDERED,
    TOP_3,
    Messages,
)
from contextpilot_integrations.gate.records import Record, ScoreFile, Scores
from contextpilot_integrations.gate.server import EXACT, LIKELIHOOD
from contextpilot_integrations.gate.trials import DEDUP, ORDER, Scorer, evaluate
from contextpilot_integrations.gate.verdict import MARGIN, judge

SCORES = Path(__file__).parent / "results" / "plain.scores.jsonl"
GENERATED_TOKENS = 10
"""The longest answer is a name of two words."""
SETTINGS = {
    "model": "SmolLM2-135M-Instruct, Q4_1 weights unpacked to bfloat16",
    "groups": GROUPS,
    "passages_per_group": GROUP_SIZE,
    "questions_per_group": REQUESTS,
    "retrieved": list(RETRIEVED),
    "cache_tokens": CACHE_TOKENS,
    "generated_tokens": GENERATED_TOKENS,
    "instructions": INSTRUCTIONS,
    "line": LINE_TEXT,
    "seed": SEED,
}
NOTES = (REORDERED, COMPACT, FULL, TOP_3, WORDS, BEST, OTHER, LINE, CLOSED_BOOK)
"""The same order with a note and without: the first is the baseline, as everywhere."""
WHERE: dict[str, Callable[[Asked], bool]] = {
    "all": lambda asked: True,
    "ranked first, stays first": lambda asked: asked.rank == asked.place == 0,
    "ranked first, moved back": lambda asked: asked.rank == 0 < asked.place,
    "ranked later, moved to the first place": lambda asked: asked.rank > 0 == asked.place,
    "ranked later, not first": lambda asked: asked.rank > 0 < asked.place,
}
"""Which questions take part, by the passage that answers: its rank, and its place in the engine's order."""


class ChoosingScorer:
    """Asks over the answering passage alone, and in the arms only when that answer is right."""

    def __init__(self, scorer: Scorer) -> None:
        """Wrap the scorer of a model, which answers by itself in every arm."""
        self._scorer = scorer

    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> dict[str, Scores]:
        """Return the scores of every arm, or those of `ALONE`."""
        alone = self._scorer.score({ALONE: prompts[ALONE]}, answers)
        if not alone[ALONE][EXACT]:
            return dict(alone)
        arms = {arm: messages for arm, messages in prompts.items() if arm != ALONE}
        return {**alone, **self._scorer.score(arms, answers)}


def measure() -> dict[str, Any]:
    """Ask what has not been asked, if there is a model; then judge the scores there are."""
    planned, scores = trials(), ScoreFile(SCORES, SETTINGS)
    folder = os.environ.get("CONTEXTPILOT_MODEL")
    if folder:
        with suppress(KeyboardInterrupt):
            _ask(planned, Path(folder), scores)
    found = [(each, scores.records[each.trial.key]) for each in planned if each.trial.key in scores.records]
    kept = [(each, record) for each, record in found if record.scores[ALONE][EXACT]]
    single = [(each, record) for each, record in kept if each.trial.group == ORDER]
    turns = [(each, record) for each, record in kept if each.trial.group == DEDUP]
    return {
        "settings": SETTINGS,
        "margin": MARGIN,
        "tried": dict(Counter(record.group for _, record in found)),
        "kept": dict(Counter(record.group for _, record in kept)),
        "places": {ORDER: _places(single), DEDUP: _places(turns)},
        "right_by_place": {
            ORIGINAL: _right(ORIGINAL, [(asked.rank, record) for asked, record in single]),
            REORDERED: _right(REORDERED, [(asked.place, record) for asked, record in single]),
        },
        "order": {
            name: _judged([pair for pair in single if belongs(pair[0])], WORDED_ARMS) for name, belongs in WHERE.items()
        },
        "notes": _judged(single, NOTES),
        "deduplication": _judged(turns, DEDUP_ARMS),
    }


def _ask(planned: Sequence[Asked], folder: Path, scores: ScoreFile) -> None:
    from benchmarks.quality_model import HuggingFaceScorer  # loads torch

    scorer = HuggingFaceScorer(folder, generate=(ALONE, *WORDED_ARMS, *DEDUP_ARMS), generated_tokens=GENERATED_TOKENS)
    asked = evaluate([each.trial for each in planned], ChoosingScorer(scorer), scores)
    for _ in track(asked, description="asking", total=len(planned)):
        pass


def _places(pairs: Sequence[tuple[Asked, Record]]) -> dict[str, dict[int, int]]:
    """Return how often the answering passage stands where, from 0 (`Asked`)."""
    return {
        "rank": dict(sorted(Counter(asked.rank for asked, _ in pairs).items())),
        "place": dict(sorted(Counter(asked.place for asked, _ in pairs).items())),
    }


def _right(arm: str, placed: Sequence[tuple[int, Record]]) -> dict[int, list[int]]:
    """Return how many questions were asked, and answered rightly, by the place of the answering passage, from 0."""
    return {
        place: [len(rows), sum(int(row.scores[arm][EXACT]) for row in rows)]
        for place in sorted({place for place, _ in placed})
        for rows in [[record for at, record in placed if at == place]]
    }


def _judged(pairs: Sequence[tuple[Asked, Record]], arms: Sequence[str]) -> dict[str, Any]:
    """Return the judgement on both metrics, by its name; without those that no record has."""
    clusters = {asked.trial.key: asked.trial.cluster for asked, _ in pairs}
    records = [record for _, record in pairs]
    judged = {metric: judge(records, arms, metric, clusters=clusters) for metric in (EXACT, LIKELIHOOD)}
    return {metric: asdict(judgement) for metric, judgement in judged.items() if judgement is not None}
