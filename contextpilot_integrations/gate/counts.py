"""How many questions of a file can tell something, before the first is asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core import RequestError
from contextpilot_integrations.gate.cases import Case
from contextpilot_integrations.gate.trials import DEDUP, ORDER, Trial
from contextpilot_integrations.gate.verdict import LEAST_CLUSTERS, LEAST_QUESTIONS


@dataclass(frozen=True, kw_only=True)
class Count:
    """Of ``questions`` of one group, ``changed`` are changed by the engine; they make so many ``clusters``."""

    group: str
    questions: int
    changed: int
    clusters: int

    @property
    def enough(self) -> bool:
        """Whether a verdict is possible."""
        return self.changed >= LEAST_QUESTIONS and self.clusters >= LEAST_CLUSTERS

    def __str__(self) -> str:
        """Say it, and what is missing."""
        said = f"{self.group}: the engine changes {self.changed} of {self.questions} questions"
        if self.changed < LEAST_QUESTIONS:
            return f"{said}, {LEAST_QUESTIONS} are needed"
        if self.clusters < LEAST_CLUSTERS:
            return f"{said}, which make only {self.clusters} of the {LEAST_CLUSTERS} clusters needed"
        return said


def count(cases: Sequence[Case], trials: Sequence[Trial]) -> tuple[Count, ...]:
    """Return what can be asked, of each kind of question that the file holds.

    Raises:
        RequestError: of no kind there is enough for a verdict.
    """
    turns = sum(bool(case.earlier) for case in cases)
    found = []
    for group, questions in ((ORDER, len(cases) - turns), (DEDUP, turns)):
        changed = {trial.key: trial.cluster or trial.key for trial in trials if trial.group == group}
        if questions:
            clusters = len(set(changed.values()))
            found.append(Count(group=group, questions=questions, changed=len(changed), clusters=clusters))
    if not any(each.enough for each in found):
        raise RequestError(
            f"too few questions to show anything, so nothing was asked ({'; '.join(map(str, found))}); give more "
            "questions, in the order of real traffic, with documents that overlap as they do there"
        )
    return tuple(found)
