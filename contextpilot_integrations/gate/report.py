"""The outcome of a gate in values and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextpilot_core.config import NoteStyle
from contextpilot_integrations.gate.arms import DEDUP_ARMS, HINTED, ORDER_ARMS
from contextpilot_integrations.gate.cases import Case
from contextpilot_integrations.gate.records import Record
from contextpilot_integrations.gate.trials import DEDUP, ORDER
from contextpilot_integrations.gate.verdict import (
    DEDUP_SAFE,
    DO_NOT,
    KEEP,
    LEAST_CLUSTERS,
    LEAST_QUESTIONS,
    NOT_SHOWN,
    NOTED,
    SAFE,
    SAFE_BARE,
    Judgement,
    dedup_verdict,
    judge,
    order_verdict,
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One verdict, and why: of ``questions`` in the file, ``changed`` were changed and asked.

    ``judgement`` is of the metric that the verdict rests on, ``others`` of further ones; None and empty when nothing
    was asked.
    """

    verdict: str
    reason: str
    questions: int
    changed: int
    judgement: Judgement | None
    others: tuple[Judgement, ...]

    @property
    def safe(self) -> bool:
        """Whether the deployment passes as it is."""
        return self.verdict in (SAFE, KEEP, DEDUP_SAFE)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a gate found; a part is None when the file has no question of its kind."""

    order: Part | None
    dedup: Part | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that there are."""
        return tuple(part for part in (self.order, self.dedup) if part is not None)

    @property
    def measured(self) -> bool:
        """Whether anything was asked at all."""
        return any(part.judgement is not None for part in self.parts)

    @property
    def safe(self) -> bool:
        """Whether every part passes."""
        return all(part.safe for part in self.parts)


def report(
    cases: Sequence[Case],
    records: Sequence[Record],
    metrics: Sequence[str],
    *,
    note: NoteStyle,
    margin: float,
    clusters: Mapping[str, str] | None = None,
) -> Report:
    """Judge the scores of all questions; the first of ``metrics`` decides. ``clusters`` as for `judge`."""

    def part(group: str, arms: Sequence[str], questions: int) -> Part | None:
        asked = [record for record in records if record.group == group]
        first, *others = [judge(asked, arms, metric, margin=margin, clusters=clusters) for metric in metrics]
        if group == ORDER:
            verdict, reason = order_verdict(first, note), _reason(first, NOTED[note], margin)
        else:
            verdict, reason = dedup_verdict(first), _reason(first, HINTED, margin)
        if group == ORDER and first is not None and verdict in (SAFE_BARE, DO_NOT, NOT_SHOWN):
            passing = [style for style, arm in NOTED.items() if first.finding(arm) == "kept"]
            if passing:
                reason += f'. {_loss(first, NOTED[passing[0]])}: EngineConfig(note="{passing[0]}") would pass'
        return Part(
            verdict=verdict,
            reason=reason,
            questions=questions,
            changed=len(asked),
            judgement=first,
            others=tuple(other for other in others if other is not None),
        )

    turns = sum(bool(case.earlier) for case in cases)
    return Report(
        order=part(ORDER, ORDER_ARMS, len(cases) - turns) if turns < len(cases) else None,
        dedup=part(DEDUP, DEDUP_ARMS, turns) if turns else None,
    )


def _reason(judgement: Judgement | None, arm: str, margin: float) -> str:
    if judgement is None:
        return "the engine changed none of these questions, so nothing was asked"
    found = next(each for each in judgement.comparisons if each.arm == arm)
    if found.difference.n < LEAST_QUESTIONS:
        return f"only {found.difference.n} of the {LEAST_QUESTIONS} changed questions that are needed"
    if found.difference.clusters < LEAST_CLUSTERS:
        return f"the changed questions make only {found.difference.clusters} of the {LEAST_CLUSTERS} clusters needed"
    if not judgement.tested:
        return "this model does not answer better with the documents than without them, so their order tests nothing"
    doubt = ""
    if found.finding == "open" and found.difference.largest_loss <= margin * judgement.worth:
        doubt = ", and these are too few questions to rely on it"
    return f"{_loss(judgement, arm)}; the margin is {margin:.1%}{doubt}"


def _loss(judgement: Judgement, arm: str) -> str:
    loss = next(each.difference.largest_loss for each in judgement.comparisons if each.arm == arm)
    return f'"{arm}" may lose {loss:.3f} at most, {loss / judgement.worth:.1%} of what the documents bring'
