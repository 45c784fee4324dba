"""The gate's figures on data whose answer is known: answers, intervals, findings, and the file of scores."""

import json
import math

import numpy as np
import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.gate.arms import CLOSED_BOOK, COMPACT, FULL, HINTED, ORIGINAL, REORDERED, REPEATED
from contextpilot_integrations.gate.records import Record, ScoreFile
from contextpilot_integrations.gate.scoring import exact_match, paired_interval, token_f1
from contextpilot_integrations.gate.trials import Trial, evaluate
from contextpilot_integrations.gate.verdict import dedup_verdict, judge, order_verdict


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("The Eiffel Tower.", ["eiffel tower"], 1.0, 1.0),
        ("It is the Eiffel Tower in Paris", ["Eiffel Tower"], 0.0, 2 * 2 / (6 + 2)),
        ("Paris", ["London", "Paris"], 1.0, 1.0),
        ("no no", ["no"], 0.0, 2 / 3),
        ("", ["no"], 0.0, 0.0),
        ("...", ["!"], 1.0, 1.0),
    ],
)
def test_answers_compare_as_in_squad(answer, gold, exact, f1):
    assert exact_match(answer, gold) == exact
    assert token_f1(answer, gold) == pytest.approx(f1)


def test_the_interval_is_that_of_the_normal_approximation_for_many_values():
    values = np.random.default_rng(1).normal(0.3, 2.0, 400)
    found = interval(values.tolist())
    half = 1.96 * values.std() / math.sqrt(400)
    assert found.n == 400 and found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(found.mean - half, abs=0.02)
    assert found.high == pytest.approx(found.mean + half, abs=0.02)
    assert found.largest_loss == max(0.0, -found.low)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    draw = np.random.default_rng(2)
    found = [interval(draw.normal(0.0, 1.0, 50).tolist()) for _ in range(200)]
    covered = sum(each.low <= 0 <= each.high for each in found)
    assert 180 <= covered <= 198  # 95 % of 200 is 190


def test_the_interval_depends_on_the_values_alone():
    values = np.random.default_rng(3).normal(size=60).tolist()
    clusters = [str(number % 7) for number in range(60)]
    assert interval(values) == interval(values[::-1])
    assert paired_interval(values, clusters) == paired_interval(values[::-1], clusters[::-1])
    assert paired_interval(values, clusters) == paired_interval(values, [f"another {name}" for name in clusters])
    assert (interval([0.5]).low, interval([0.5]).high) == (0.5, 0.5)


def test_questions_of_one_cluster_count_as_one_where_they_agree():
    values = np.random.default_rng(5).normal(size=40)
    alone = interval(values.tolist())
    together = paired_interval(np.repeat(values, 5).tolist(), [str(number // 5) for number in range(200)])
    assert (together.n, together.clusters) == (200, 40)
    assert together.mean == pytest.approx(alone.mean)
    assert together.high - together.low == pytest.approx(alone.high - alone.low)
    taken_apart = interval(np.repeat(values, 5).tolist())
    assert together.high - together.low > 2 * (taken_apart.high - taken_apart.low)


def test_the_interval_of_clusters_covers_the_true_mean_as_often_as_it_says():
    draw = np.random.default_rng(6)
    clusters = [str(number // 4) for number in range(200)]
    found = [
        paired_interval((np.repeat(draw.normal(size=50), 4) + draw.normal(size=200)).tolist(), clusters)
        for _ in range(200)
    ]
    covered = sum(each.low <= 0 <= each.high for each in found)
    assert 180 <= covered <= 198


def interval(values):
    """Of questions that are independent of each other."""
    return paired_interval(values, [str(number) for number in range(len(values))])


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


class Counting:
    def __init__(self):
        self.asked = 0

    def score(self, prompts, answers):
        self.asked += 1
        return {arm: {"f1": 1 / 3} for arm in prompts}


def trial(number):
    return Trial(group="order", answers=("A",), prompts={ORIGINAL: [{"role": "user", "content": f"Q{number}"}]})


def test_what_is_in_the_file_is_not_asked_again(tmp_path):
    scorer, trials = Counting(), [trial(0), trial(1), trial(2)]
    first = list(evaluate(trials[:2], scorer, ScoreFile(tmp_path / "s.jsonl", {"model": "m"})))
    again = list(evaluate(trials, scorer, ScoreFile(tmp_path / "s.jsonl", {"model": "m"})))
    assert scorer.asked == 3
    assert again[:2] == first
    assert first[0].scores == {ORIGINAL: {"f1": 0.33333}}  # as the file has it, also in the run that wrote it


def test_other_prompts_have_another_name():
    assert trial(0).key == trial(0).key != trial(1).key


def test_a_line_that_broke_off_is_taken_away(tmp_path):
    path = tmp_path / "deep" / "s.jsonl"
    list(evaluate([trial(0), trial(1)], Counting(), ScoreFile(path, {})))
    whole = path.read_text()
    path.write_text(whole[:-10])
    assert list(ScoreFile(path, {}).records) == [trial(0).key]
    list(evaluate([trial(0), trial(1)], Counting(), ScoreFile(path, {})))
    assert path.read_text() == whole


@pytest.mark.parametrize("text", ["", "[]\n", '{"settings": {}}\n{"key": 1}\n', "no JSON\n"])
def test_another_file_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no file of scores"):
        ScoreFile(path, {})
    assert path.read_text() == text


def test_other_settings_are_named(tmp_path):
    path = tmp_path / "s.jsonl"
    ScoreFile(path, {"model": "a", "metric": "f1"})
    with pytest.raises(ConfigError, match=r"other settings \(model\)"):
        ScoreFile(path, {"model": "b", "metric": "f1"})
    assert json.loads(path.read_text()) == {"settings": {"model": "a", "metric": "f1"}}
