"""Answer quality with a real model: paired questions, each asked in every arm of ``contextpilot-rag gate``.

It takes hours of CPU, so every question's scores are kept beside the results, in ``quality.scores.jsonl``, and another
run goes on there. End a run with Ctrl-C, or ``timeout -s INT 1h python -m benchmarks quality``. `CONTEXTPILOT_MODEL`
names the folder of the model; without it nothing is asked, and the figures are computed from the scores there are.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.quality_trials import (
    ANSWER_TOKENS,
    CACHE_TOKENS,
    DOCUMENT_CHARACTERS,
    GENERATED_TOKENS,
    INSTRUCTIONS,
    SEED,
    TOP_K,
    TURNS,
    trials,
)
from contextpilot_integrations.gate.arms import CLOSED_BOOK, COMPACT, DEDUP_ARMS, ORDER_ARMS, ORIGINAL, REORDERED
from contextpilot_integrations.gate.records import Record, ScoreFile
from contextpilot_integrations.gate.server import EXACT, F1, LIKELIHOOD
from contextpilot_integrations.gate.trials import Trial, evaluate
from contextpilot_integrations.gate.verdict import MARGIN, judge

SCORES = Path(__file__).parent / "results" / "quality.scores.jsonl"
SETTINGS = {
    "model": "SmolLM2-135M-Instruct, Q4_1 weights unpacked to bfloat16",
    "top_k": TOP_K,
    "cache_tokens": CACHE_TOKENS,
    "document_characters": DOCUMENT_CHARACTERS,
    "answer_tokens": ANSWER_TOKENS,
    "generated_tokens": GENERATED_TOKENS,
    "instructions": INSTRUCTIONS,
    "seed": SEED,
}
GENERATE = (ORIGINAL, REORDERED, COMPACT, CLOSED_BOOK)


def measure() -> dict[str, Any]:
    """Ask what has not been asked, if there is a model; then judge the scores there are."""
    planned, scores = trials(), ScoreFile(SCORES, SETTINGS)
    folder = os.environ.get("CONTEXTPILOT_MODEL")
    if folder:
        with suppress(KeyboardInterrupt):
            _ask(planned, Path(folder), scores)
    found = [scores.records[trial.key] for trial in planned if trial.key in scores.records]
    clusters = {trial.key: trial.cluster for trial in planned}
    groups = [group for group in dict.fromkeys(trial.group for trial in planned) if group != TURNS]
    return {
        "settings": SETTINGS,
        "margin": MARGIN,
        "planned": dict(Counter(trial.group for trial in planned)),
        "scored": dict(Counter(record.group for record in found)),
        "order": {
            name: _judged([record for record in found if record.group in members], ORDER_ARMS, clusters)
            for name, members in {**{group: [group] for group in groups}, "all": groups}.items()
        },
        "deduplication": _judged([record for record in found if record.group == TURNS], DEDUP_ARMS, clusters),
    }


def _ask(planned: Sequence[Trial], folder: Path, scores: ScoreFile) -> None:
    from benchmarks.quality_model import HuggingFaceScorer  # loads torch

    scorer = HuggingFaceScorer(folder, generate=GENERATE)
    for _ in track(evaluate(planned, scorer, scores), description="asking", total=len(planned)):
        pass


def _judged(records: Sequence[Record], arms: Sequence[str], clusters: Mapping[str, str]) -> dict[str, Any]:
    """Return the judgement on every metric, by its name; without those that no record has."""
    judged = {metric: judge(records, arms, metric, clusters=clusters) for metric in (LIKELIHOOD, F1, EXACT)}
    return {metric: asdict(judgement) for metric, judgement in judged.items() if judgement is not None}
