"""Answers against gold answers, and intervals, on data whose result is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_integrations.gate.scoring import exact_match, paired_interval, token_f1


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


@settings(deadline=None)
@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_f1_is_a_share_and_full_where_the_words_match_exactly(answer, gold):
    found = token_f1(answer, gold)
    assert 0.0 <= found <= 1.0
    assert exact_match(answer, gold) <= found
    assert found == max(token_f1(each, [answer]) for each in gold)
    assert token_f1(answer, [*gold, answer]) == exact_match(answer, [*gold, answer]) == 1.0
