"""What the scores allow to say, and what not.

For every arm two things are computed over the paired questions, each with a bootstrap interval of 95 %:

- the *difference*: score of the arm minus score of the baseline (the same documents by rank; repeated in full);
- the *worth* of the documents: score of the baseline minus score without any document.

The margin is a share of that worth (default 5 %), so that one rule serves likelihoods and F1 alike: where documents
lift F1 by 0.4, the margin is 0.02. An arm is

- **kept** when the lower end of "difference + margin x worth" is not below 0, and the lower end of the worth is above
  0: where documents make no difference to a model, their order cannot either, and nothing was tested;
- **lost** when the upper end of the difference is below 0, and the arm is not kept;
- **open** otherwise, and always below `LEAST_QUESTIONS` questions, where a bootstrap interval is too narrow.

Only questions that an arm changes take part: those whose documents the engine moved, or replaced by a hint.

The verdict on order: "safe to reorder" when the reordered arm is kept without a note; else "keep annotation" when it is
kept with the note in use; else "do not reorder" when the reordered arm has lost; else "not shown". These are two tests
at 2.5 % each: a deployment that loses the whole margin passes with a chance of about 5 % at most. The other arms are
for information. The verdict on de-duplication rests on one test, that of the hints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from contextpilot_integrations.gate.arms import COMPACT, FULL, HINTED, REORDERED
from contextpilot_integrations.gate.records import Record
from contextpilot_integrations.gate.statistics import Interval, paired_interval

MARGIN = 0.05
LEAST_QUESTIONS = 30

Note = Literal["compact", "full"]
Finding = Literal["kept", "lost", "open"]

SAFE, KEEP, DO_NOT, NOT_SHOWN = "safe to reorder", "keep annotation", "do not reorder", "not shown"
DEDUP_SAFE, DEDUP_DO_NOT = "safe to de-duplicate", "do not de-duplicate"

NOTED = {"compact": COMPACT, "full": FULL}
"""Note style of a deployment -> the arm that stands for it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One arm over ``difference.n`` questions: mean score, paired difference from the baseline, what that shows."""

    arm: str
    score: float
    difference: Interval
    finding: Finding


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Every arm of one set of questions against its baseline, whose mean is ``score``; higher scores are better.

    ``worth``: what the documents bring, mean score of the baseline minus that without documents; ``tested``: whether
    its interval lies above 0.
    """

    metric: str
    questions: int
    baseline: str
    score: float
    worth: float
    tested: bool
    comparisons: tuple[Comparison, ...]

    def finding(self, arm: str) -> Finding:
        """Return what was found of an arm."""
        return next((each.finding for each in self.comparisons if each.arm == arm), "open")


def judge(records: Sequence[Record], arms: Sequence[str], metric: str, *, margin: float = MARGIN) -> Judgement | None:
    """Compare ``arms`` over the records that hold the first (the baseline) and the last (no documents), or None."""
    by_arm = [(arm, _scores(records, arm, metric)) for arm in arms]
    base, without = by_arm[0][1], by_arm[-1][1]
    worth = {key: base[key] - without[key] for key in base if key in without}
    if not worth:
        return None
    tested = paired_interval(list(worth.values())).low > 0

    def compare(arm: str, scores: Mapping[str, float]) -> Comparison:
        changes = {key: scores[key] - base[key] for key in worth if key in scores}
        difference = paired_interval(list(changes.values()))
        retained = paired_interval([change + margin * worth[key] for key, change in changes.items()])
        finding: Finding = "open"
        if difference.n >= LEAST_QUESTIONS:
            kept = tested and retained.low >= 0
            finding = "kept" if kept else "lost" if difference.high < 0 else "open"
        return Comparison(arm=arm, score=fmean(scores[key] for key in changes), difference=difference, finding=finding)

    return Judgement(
        metric=metric,
        questions=len(worth),
        baseline=arms[0],
        score=fmean(base[key] for key in worth),
        worth=fmean(worth.values()),
        tested=tested,
        comparisons=tuple(compare(arm, scores) for arm, scores in by_arm[1:] if scores.keys() & worth.keys()),
    )


def order_verdict(judgement: Judgement | None, note: Note) -> str:
    """Return `SAFE`, `KEEP`, `DO_NOT` or `NOT_SHOWN`; ``note``: the style that the deployment uses."""
    if judgement is None:
        return NOT_SHOWN
    if judgement.finding(REORDERED) == "kept":
        return SAFE
    if judgement.finding(NOTED[note]) == "kept":
        return KEEP
    return DO_NOT if judgement.finding(REORDERED) == "lost" else NOT_SHOWN


def dedup_verdict(judgement: Judgement | None) -> str:
    """Return `DEDUP_SAFE`, `DEDUP_DO_NOT` or `NOT_SHOWN`."""
    finding = "open" if judgement is None else judgement.finding(HINTED)
    return {"kept": DEDUP_SAFE, "lost": DEDUP_DO_NOT, "open": NOT_SHOWN}[finding]


def _scores(records: Sequence[Record], arm: str, metric: str) -> dict[str, float]:
    return {each.key: each.scores[arm][metric] for each in records if metric in each.scores.get(arm, {})}
