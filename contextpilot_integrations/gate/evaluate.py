"""Score every arm of every question, and keep the scores."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from contextpilot_integrations.gate.arms import Messages
from contextpilot_integrations.gate.records import Record, ScoreFile, Scores


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A question, ready to be asked in every arm; ``cluster`` as in `Case`."""

    group: str
    answers: tuple[str, ...]
    prompts: Mapping[str, Messages]
    cluster: str = ""

    @cached_property
    def key(self) -> str:
        """A name that follows from what is asked: scores are found again, and never those of other prompts."""
        content = json.dumps([self.answers, dict(self.prompts)], sort_keys=True)
        return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]


class Scorer(Protocol):
    """A model that is asked; higher scores are better."""

    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> Mapping[str, Scores]:
        """Return the scores of every arm of one question."""


def evaluate(trials: Sequence[Trial], scorer: Scorer, scores: ScoreFile) -> Iterator[Record]:
    """Yield the record of every trial, in order; those that the file holds are not asked again."""
    for trial in trials:
        if trial.key not in scores.records:
            found = scorer.score(trial.prompts, trial.answers)
            scores.add(Record(key=trial.key, group=trial.group, scores=found))
        yield scores.records[trial.key]
