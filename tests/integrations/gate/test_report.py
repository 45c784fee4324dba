"""The outcome of a gate in words: which verdict, from how many questions, and why."""

import pytest

from contextpilot_integrations.gate.arms import CLOSED_BOOK, COMPACT, HINTED, ORIGINAL, REORDERED, REPEATED
from contextpilot_integrations.gate.cases import Case, EarlierTurn
from contextpilot_integrations.gate.records import Record
from contextpilot_integrations.gate.report import Part, Report, report
from contextpilot_integrations.gate.trials import DEDUP, ORDER

SINGLE = Case(query="Q", documents=("A", "B"), answers=("yes",))
TURN = Case(
    query="Q", documents=("A",), answers=("yes",), earlier=(EarlierTurn(query="F", documents=("A",), answer="B"),)
)


def records(number, *, closed=0.0, reordered=1.0, compact=1.0, group=ORDER):
    """Questions that are answered rightly in the baseline, and so well in the other arms."""
    names = (ORIGINAL, REORDERED, COMPACT) if group == ORDER else (REPEATED, HINTED, HINTED)
    scores = {**dict(zip(names, (1.0, reordered, compact), strict=True)), CLOSED_BOOK: closed}
    both = {arm: {"f1": score, "exact": score / 2} for arm, score in scores.items()}
    return [Record(key=f"{group} {each}", group=group, scores=both) for each in range(number)]


def order(asked, *, note="compact", questions=200, **options) -> Part:
    part = report([SINGLE] * questions, asked, ("f1", "exact"), note=note, margin=0.05, **options).order
    assert part is not None
    return part


def test_a_part_for_every_kind_of_question_in_the_file():
    def parts(*cases):
        return report(cases, [], ("f1",), note="compact", margin=0.05)

    single, turns, both = parts(SINGLE), parts(TURN, TURN), parts(TURN, SINGLE, TURN)
    assert single.dedup is None and single.parts == (single.order,)
    assert turns.order is None and turns.parts == (turns.dedup,)
    assert [part.questions for part in both.parts] == [1, 2]


def test_where_nothing_was_changed_nothing_was_measured():
    found = report([SINGLE, TURN], [], ("f1", "exact"), note="compact", margin=0.05)
    assert not found.measured and not found.safe
    for part in found.parts:
        assert (part.verdict, part.changed, part.judgement, part.others) == ("not shown", 0, None, ())
        assert part.reason == "the engine changed none of these questions, so nothing was asked"


def test_the_first_metric_decides_and_the_others_are_told():
    part = order(records(100))
    assert (part.verdict, part.safe, part.questions, part.changed) == ("safe to reorder", True, 200, 100)
    assert part.judgement is not None and part.judgement.metric == "f1"
    assert [(each.metric, each.score) for each in part.others] == [("exact", 0.5)]
    assert part.reason == (
        '"reordered + compact note" may lose 0.000 at most, 0.0% of what the documents bring; the margin is 5.0%'
    )


def test_the_scores_of_one_kind_say_nothing_of_the_other():
    asked = [*records(100), *records(60, group=DEDUP, compact=0.5)]
    found = report([SINGLE, TURN], asked, ("f1",), note="compact", margin=0.05)
    assert found.order is not None and found.dedup is not None
    assert (found.order.verdict, found.dedup.verdict) == ("safe to reorder", "do not de-duplicate")
    assert (found.order.changed, found.dedup.changed) == (100, 60)
    assert found.measured and not found.safe


@pytest.mark.parametrize(
    ("asked", "note", "verdict", "reason"),
    [
        (records(100, reordered=0.5), "compact", "keep annotation", '"reordered + compact note" may lose 0.000'),
        (records(100, reordered=0.5), "none", "do not reorder", '"reordered" may lose 0.500 at most, 50.0% of what'),
        (records(200, closed=0.5, compact=0.75), "compact", "safe without annotation", "lose 0.250 at most, 50.0% of"),
        (records(29), "compact", "not shown", "only 29 of the 30 changed questions that are needed"),
        (records(100, closed=1.0), "compact", "not shown", "does not answer better with the documents than without"),
        (records(50), "compact", "not shown", "margin is 5.0%, and these are too few questions to rely on it"),
    ],
)
def test_the_reason_is_that_of_the_arm_in_use(asked, note, verdict, reason):
    part = order(asked, note=note)
    assert part.verdict == verdict
    assert reason in part.reason


def test_the_way_out_is_named_where_the_bare_order_would_pass():
    part = order(records(100, compact=0.5))
    assert not part.safe
    assert part.reason.endswith(
        '. "reordered" may lose 0.000 at most, 0.0% of what the documents bring: EngineConfig(note="none") would pass'
    )
    assert "would pass" not in order(records(100, reordered=0.5, compact=0.5)).reason


def test_clusters_are_counted_where_they_are_too_few():
    asked = records(100)
    part = order(asked, clusters={record.key: str(number % 9) for number, record in enumerate(asked)})
    assert part.verdict == "not shown"
    assert part.reason == "the changed questions make only 9 of the 10 clusters needed"


def test_a_report_without_parts_is_safe_and_measured_nothing():
    assert Report(order=None, dedup=None).safe
    assert not Report(order=None, dedup=None).measured
