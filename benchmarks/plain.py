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
    CACHE_TOKENS,
    GROUPS,
    INSTRUCTIONS,
    LINE_TEXT,
    SEED,
    WORDED_ARMS,
    Asked,
    trials,
)
from contextpilot_integrations.gate.arms import DEDUP_ARMS, Messages
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
RANKS: dict[str, Callable[[Asked], bool]] = {
    "all": lambda asked: True,
    "answer ranked first": lambda asked: asked.rank == 0,
    "ranked second or third": lambda asked: asked.rank in (1, 2),
    "ranked later": lambda asked: asked.rank > 2,
}
"""Which questions take part, by the rank of the passage that answers."""


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
        "order": {
            name: _judged([pair for pair in single if belongs(pair[0])], WORDED_ARMS) for name, belongs in RANKS.items()
        },
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


def _judged(pairs: Sequence[tuple[Asked, Record]], arms: Sequence[str]) -> dict[str, Any]:
    """Return the judgement on both metrics, by its name; without those that no record has."""
    clusters = {asked.trial.key: asked.trial.cluster for asked, _ in pairs}
    records = [record for _, record in pairs]
    judged = {metric: judge(records, arms, metric, clusters=clusters) for metric in (EXACT, LIKELIHOOD)}
    return {metric: asdict(judgement) for metric, judgement in judged.items() if judgement is not None}
