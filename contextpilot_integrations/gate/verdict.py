"""What the scores allow to say, and what not.

For every arm two things are computed over the paired questions, each with a bootstrap interval of 95 %, in which
questions of one cluster are drawn together:

- the *difference*: score of the arm minus score of the baseline (the same documents by rank; repeated in full);
- the *worth* of the documents: score of the baseline minus score without any document.

The margin is a share of that worth (default 5 %), so that one rule serves likelihoods and F1 alike: where documents
lift F1 by 0.4, the margin is 0.02. An arm is

- **kept** when the lower end of "difference + margin x worth" is not below 0, and the lower end of the worth is above
  0: where documents make no difference to a model, their order cannot either, and nothing was tested;
- **lost** when the upper end of the difference is below 0, and the arm is not kept;
- **open** otherwise, and always below `LEAST_QUESTIONS` questions or `LEAST_CLUSTERS` clusters, where a bootstrap
  interval is too narrow.

An answer by itself (F1, exact match) is mostly right or wrong, and of a few questions none may happen to be lost, which
a bootstrap takes for certainty. So such an arm is kept only if it would be with one more question that lost everything.

Only questions that an arm changes take part: those whose documents the engine moved, or replaced by a hint.

A deployment passes when the very arm that it sends is kept, with its note or without one. The verdict on order is then
"safe to reorder", or "keep annotation" where the reordered arm without a note is not kept. A deployment does not pass
with "safe without annotation" (only the arm without a note is kept), "do not reorder" (one of the two has lost) and
"not shown". So passing rests on one test at 2.5 %, and so does that of de-duplication, by its hints. The other arms are
for information.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from contextpilot_core.config import NoteStyle
from contextpilot_integrations.gate.arms import COMPACT, FULL, HINTED, REORDERED
from contextpilot_integrations.gate.records import Record
from contextpilot_integrations.gate.scoring import Interval, paired_interval
from contextpilot_integrations.gate.server import LIKELIHOOD

MARGIN = 0.05
LEAST_QUESTIONS = 30
LEAST_CLUSTERS = 10

Finding = Literal["kept", "lost", "open"]

SAFE, KEEP, DO_NOT, NOT_SHOWN = "safe to reorder", "keep annotation", "do not reorder", "not shown"
SAFE_BARE = "safe without annotation"
DEDUP_SAFE, DEDUP_DO_NOT = "safe to de-duplicate", "do not de-duplicate"

NOTED: Mapping[NoteStyle, str] = {"none": REORDERED, "compact": COMPACT, "full": FULL}
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


def judge(
    records: Sequence[Record],
    arms: Sequence[str],
    metric: str,
    *,
    margin: float = MARGIN,
    clusters: Mapping[str, str] | None = None,
) -> Judgement | None:
    """Compare ``arms`` over the records that hold the first (the baseline) and the last (no documents), or None.

    ``clusters``: by the key of a record, where it belongs to one; the others are independent.
    """
    by_arm = [(arm, _scores(records, arm, metric)) for arm in arms]
    base, without = by_arm[0][1], by_arm[-1][1]
    worth = {key: base[key] - without[key] for key in base if key in without}
    if not worth:
        return None
    mean_worth = fmean(worth.values())
    cluster = {key: f"cluster {clusters[key]}" if clusters and key in clusters else key for key in worth}
    tested = paired_interval(list(worth.values()), list(cluster.values())).low > 0

    def compare(arm: str, scores: Mapping[str, float]) -> Comparison:
        changes = {key: scores[key] - base[key] for key in worth if key in scores}
        names = [cluster[key] for key in changes]
        difference = paired_interval(list(changes.values()), names)
        retained = [change + margin * worth[key] for key, change in changes.items()]
        if metric != LIKELIHOOD:
            retained, names = [*retained, margin * mean_worth - 1.0], [*names, "one more, lost"]
        finding: Finding = "open"
        if difference.n >= LEAST_QUESTIONS and difference.clusters >= LEAST_CLUSTERS:
            kept = tested and paired_interval(retained, names).low >= 0
            finding = "kept" if kept else "lost" if difference.high < 0 else "open"
        return Comparison(arm=arm, score=fmean(scores[key] for key in changes), difference=difference, finding=finding)

    return Judgement(
        metric=metric,
        questions=len(worth),
        baseline=arms[0],
        score=fmean(base[key] for key in worth),
        worth=mean_worth,
        tested=tested,
        comparisons=tuple(compare(arm, scores) for arm, scores in by_arm[1:] if scores.keys() & worth.keys()),
    )


def order_verdict(judgement: Judgement | None, note: NoteStyle) -> str:
    """Return `SAFE`, `KEEP`, `SAFE_BARE`, `DO_NOT` or `NOT_SHOWN`; ``note``: the style that the deployment uses."""
    if judgement is None:
        return NOT_SHOWN
    bare, sent = judgement.finding(REORDERED), judgement.finding(NOTED[note])
    if sent == "kept":
        return SAFE if bare == "kept" else KEEP
    if bare == "kept":
        return SAFE_BARE
    return DO_NOT if "lost" in (bare, sent) else NOT_SHOWN


def dedup_verdict(judgement: Judgement | None) -> str:
    """Return `DEDUP_SAFE`, `DEDUP_DO_NOT` or `NOT_SHOWN`."""
    finding = "open" if judgement is None else judgement.finding(HINTED)
    return {"kept": DEDUP_SAFE, "lost": DEDUP_DO_NOT, "open": NOT_SHOWN}[finding]


def _scores(records: Sequence[Record], arm: str, metric: str) -> dict[str, float]:
    return {each.key: each.scores[arm][metric] for each in records if metric in each.scores.get(arm, {})}
