"""Findings and verdicts on scores whose truth is known."""

import numpy as np
import pytest

from contextpilot_integrations.gate.arms import CLOSED_BOOK, COMPACT, FULL, HINTED, ORIGINAL, REORDERED, REPEATED
from contextpilot_integrations.gate.records import Record
from contextpilot_integrations.gate.verdict import dedup_verdict, judge, order_verdict


def records(n=200, spread=0.05, **losses):
    """Scores around 1 with documents and 0 without; ``losses`` are mean losses by name of an arm."""
    draw = np.random.default_rng(4)
    arms = {"reordered": REORDERED, "compact": COMPACT, "full": FULL}
    found = []
    for number in range(n):
        scores = {ORIGINAL: 1.0, CLOSED_BOOK: 0.0}
        scores |= {arms[name]: 1.0 - loss for name, loss in losses.items()}
        noisy = {arm: {"f1": score + draw.normal(0, spread)} for arm, score in scores.items()}
        found.append(Record(key=str(number), group="order", scores=noisy))
    return found


ARMS = (ORIGINAL, REORDERED, COMPACT, FULL, CLOSED_BOOK)


@pytest.mark.parametrize(
    ("losses", "note", "verdict"),
    [
        ({"reordered": 0.0, "compact": 0.0}, "compact", "safe to reorder"),
        ({"reordered": 0.02, "compact": 0.0}, "compact", "safe to reorder"),  # shown, but within the margin
        ({"reordered": 0.2, "compact": 0.0}, "compact", "keep annotation"),
        ({"reordered": 0.2, "compact": 0.2, "full": 0.0}, "compact", "do not reorder"),  # not the note in use
        ({"reordered": 0.2, "compact": 0.2, "full": 0.0}, "full", "keep annotation"),
        ({"reordered": 0.05, "compact": 0.2}, "compact", "do not reorder"),
        ({"reordered": -0.2, "compact": 0.2}, "compact", "safe without annotation"),  # what is sent has lost
        ({"reordered": 0.0, "compact": 0.2}, "none", "safe to reorder"),
        ({"reordered": 0.2, "compact": 0.0}, "none", "do not reorder"),
    ],
)
def test_verdicts_on_order(losses, note, verdict):
    assert order_verdict(judge(records(**losses), ARMS, "f1"), note) == verdict


def test_a_wide_interval_shows_nothing():
    assert order_verdict(judge(records(spread=1.0, reordered=0.0), ARMS, "f1"), "compact") == "not shown"


def test_documents_that_bring_nothing_test_nothing():
    flat = [Record(key=str(number), group="order", scores={arm: {"f1": 0.3} for arm in ARMS}) for number in range(60)]
    judgement = judge(flat, ARMS, "f1")
    assert judgement is not None and not judgement.tested
    assert order_verdict(judgement, "compact") == "not shown"


def test_a_wider_margin_admits_more():
    lossy = records(reordered=0.1)
    assert order_verdict(judge(lossy, ARMS, "f1", margin=0.2), "none") == "safe to reorder"
    assert order_verdict(judge(lossy, ARMS, "f1", margin=0.0), "none") == "do not reorder"


def test_answers_that_none_of_a_few_questions_lost_show_nothing():
    perfect = {ORIGINAL: {"f1": 1.0}, REORDERED: {"f1": 1.0}, CLOSED_BOOK: {"f1": 0.0}}
    few, many = ([Record(key=str(each), group="order", scores=perfect) for each in range(n)] for n in (50, 100))
    arms = (ORIGINAL, REORDERED, CLOSED_BOOK)
    assert [order_verdict(judge(asked, arms, "f1"), "none") for asked in (few, many)] == [
        "not shown",
        "safe to reorder",
    ]


def test_clusters_decide_how_much_is_shown():
    asked = records(reordered=0.0, compact=0.0)
    few = {record.key: str(int(record.key) % 9) for record in asked}
    assert order_verdict(judge(asked, ARMS, "f1"), "compact") == "safe to reorder"
    assert order_verdict(judge(asked, ARMS, "f1", clusters=few), "compact") == "not shown"


def test_few_records_or_none_show_nothing():
    assert order_verdict(judge(records(29, reordered=0.0), ARMS, "f1"), "compact") == "not shown"
    assert judge([], ARMS, "f1") is None
    assert judge(records(reordered=0.0), ARMS, "log_likelihood") is None
    assert order_verdict(None, "compact") == dedup_verdict(None) == "not shown"


@pytest.mark.parametrize(
    ("loss", "verdict"), [(0.0, "safe to de-duplicate"), (0.3, "do not de-duplicate"), (0.05, "do not de-duplicate")]
)
def test_verdicts_on_deduplication(loss, verdict):
    named = [
        Record(
            key=record.key,
            group="turns",
            scores={
                REPEATED: record.scores[ORIGINAL],
                HINTED: record.scores[REORDERED],
                CLOSED_BOOK: record.scores[CLOSED_BOOK],
            },
        )
        for record in records(reordered=loss)
    ]
    assert dedup_verdict(judge(named, (REPEATED, HINTED, CLOSED_BOOK), "f1")) == verdict
