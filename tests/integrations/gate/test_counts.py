"""How many questions can tell something, and when there are too few of every kind."""

import pytest

from contextpilot_core import RequestError
from contextpilot_integrations.gate.arms import ORIGINAL
from contextpilot_integrations.gate.cases import Case, EarlierTurn
from contextpilot_integrations.gate.counts import Count, count
from contextpilot_integrations.gate.trials import DEDUP, ORDER, Trial

SINGLE = Case(query="Q", documents=("A", "B"), answers=("yes",))
TURN = Case(
    query="Q", documents=("A",), answers=("yes",), earlier=(EarlierTurn(query="F", documents=("A",), answer="B"),)
)


def trials(number, group=ORDER, cluster=lambda number: ""):
    return [
        Trial(
            group=group,
            answers=("A",),
            prompts={ORIGINAL: [{"role": "user", "content": f"Q{each}"}]},
            cluster=cluster(each),
        )
        for each in range(number)
    ]


def test_each_kind_is_counted_by_itself():
    found = count([SINGLE] * 50 + [TURN] * 40, [*trials(30), *trials(7, DEDUP)])
    assert found == (
        Count(group=ORDER, questions=50, changed=30, clusters=30),
        Count(group=DEDUP, questions=40, changed=7, clusters=7),
    )
    assert [each.enough for each in found] == [True, False]
    assert str(found[0]) == "order: the engine changes 30 of 50 questions"
    assert str(found[1]) == "de-duplication: the engine changes 7 of 40 questions, 30 are needed"


def test_a_question_that_is_asked_twice_counts_once():
    with pytest.raises(RequestError, match="the engine changes 29 of 60 questions, 30 are needed"):
        count([SINGLE] * 60, [*trials(29), *trials(29)])


@pytest.mark.parametrize("clusters", [9, 10])
def test_questions_of_one_cluster_are_one_witness(clusters):
    asked = trials(40, cluster=lambda number: str(number % clusters))
    if clusters < 10:
        with pytest.raises(RequestError, match="which make only 9 of the 10 clusters needed"):
            count([SINGLE] * 40, asked)
    else:
        assert count([SINGLE] * 40, asked)[0].clusters == 10
        assert count([SINGLE] * 40, [*trials(30), *asked[30:]])[0].clusters == 40


@pytest.mark.parametrize(("cases", "asked"), [([SINGLE], []), ([TURN], []), ([SINGLE, TURN], trials(1))])
def test_too_few_of_all_kinds_are_refused(cases, asked):
    with pytest.raises(RequestError, match="too few questions to show anything, so nothing was asked"):
        count(cases, asked)
