"""The plain questions: each has one answer, the passage that holds it stands everywhere, and what an arm says is so."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import plain, plain_trials
from benchmarks.plain_questions import GROUP_SIZE, RETRIEVED, kinds, questions
from contextpilot_integrations.gate.arms import (
    CLOSED_BOOK,
    COMPACT,
    DEDUP_ARMS,
    DROPPED,
    HINTED,
    ORIGINAL,
    REORDERED,
    REPEATED,
)
from contextpilot_integrations.gate.scoring import normalise
from contextpilot_integrations.gate.server import EXACT, LIKELIHOOD
from contextpilot_integrations.gate.trials import DEDUP, ORDER

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SOME = 24


@pytest.fixture(scope="module")
def asked():
    return plain_trials.trials(SOME)


def of(asked, group):
    return [each for each in asked if each.trial.group == group]


def holds(text, answer):
    """Whether the answer stands there as words of its own; a person may be called like a place, and is no answer."""
    if answer.isalpha():
        text = re.sub(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b", "", text)
    return re.search(rf"\b{answer}\b", text) is not None


def user(trial, arm):
    return trial.prompts[arm][-2]["content"]


def test_questions_are_the_same_every_time_and_whatever_comes_after_them():
    assert questions(SOME) == questions(SOME) == questions(SOME + 5)[: len(questions(SOME))]


def test_every_kind_has_four_facts_whose_sentence_holds_the_value():
    for kind in kinds():
        assert len({fact.pool for fact in kind.facts}) == 4
        for fact in kind.facts:
            assert fact.sentence.count("{value}") == 1
            assert "{name}" in fact.question and "{name}" in fact.beginning
            assert "{value}" not in fact.question + fact.beginning
        assert "{name}" in kind.facts[0].sentence


def test_the_answer_stands_word_for_word_in_one_passage_of_a_question():
    for question in questions(SOME):
        holding = [place for place, text in enumerate(question.passages) if holds(text, question.answer)]
        assert holding == [question.gold]
        assert len(set(question.passages)) == len(question.passages) in RETRIEVED
        assert all(25 <= len(text.split()) <= 60 for text in question.passages)
        assert not set(normalise(question.answer)) & set(normalise(question.query + " " + question.beginning))


def test_a_group_has_so_many_passages_and_asks_nothing_twice():
    by_group = {}
    for question in questions(SOME):
        by_group.setdefault(question.group, []).append(question)
    for found in by_group.values():
        assert len({text for question in found for text in question.passages}) == GROUP_SIZE
        assert len({question.query for question in found}) == len(found)


def test_the_answer_takes_every_rank_equally_often():
    for size in RETRIEVED:
        ranks = Counter(question.gold for question in questions(60) if len(question.passages) == size)
        assert len(ranks) == size
        assert max(ranks.values()) - min(ranks.values()) <= 2


def test_every_part_of_the_list_is_balanced_over_ranks_and_places():
    planned = plain_trials.trials(SOME * 3)
    for group in (ORDER, DEDUP):
        cells = Counter(each.cell for each in of(planned, group)[:90])
        assert len(cells) == 9
        assert max(cells.values()) - min(cells.values()) <= 1
    assert [each.trial.group for each in planned[:6]] == [ORDER, DEDUP, ORDER] * 2


def test_rank_and_place_say_where_the_answer_stands(asked):
    for each in of(asked, ORDER):
        (answer,) = each.trial.answers
        for arm, place in ((ORIGINAL, each.rank), (REORDERED, each.place), (COMPACT, each.place)):
            _, *documents = user(each.trial, arm).rsplit("\n\n", 1)[0].split("[Doc ")
            assert [number for number, text in enumerate(documents) if holds(text[1:], answer)] == [place]
    for each in of(asked, DEDUP):
        (answer,) = each.trial.answers
        (_, earlier, *_) = each.trial.prompts[HINTED]
        _, *documents = earlier["content"].split("[Doc ")
        assert [number for number, text in enumerate(documents) if holds(text[1:], answer)] == [each.place]
        assert user(each.trial, HINTED).splitlines().count(f"See [Doc {each.place + 1}] above.") == 1


def test_a_note_names_the_order_of_rank_in_labels_of_the_prompt(asked):
    for each in of(asked, ORDER):
        prompts = each.trial.prompts
        documents = {arm: user(each.trial, arm).split("[Doc ")[1:] for arm in (ORIGINAL, REORDERED)}
        bodies = {arm: [text.split("===")[1] for text in texts] for arm, texts in documents.items()}
        labels = [bodies[REORDERED].index(body) + 1 for body in bodies[ORIGINAL]]
        plain_text, query = user(each.trial, REORDERED).rsplit("\n\n", 1)
        expected = {
            COMPACT: "Relevance: " + " ".join(map(str, labels[:5])),
            plain_trials.WORDS: plain_trials.in_words(labels[:3]),
            plain_trials.BEST: plain_trials.in_words(labels[:1]),
        }
        for arm, note in expected.items():
            assert user(each.trial, arm) == f"{plain_text}\n\n{note}\n\n{query}"
        assert user(each.trial, plain_trials.LINE) == f"{plain_trials.LINE_TEXT}\n\n{plain_text}\n\n{query}"
        assert tuple(prompts) == (plain_trials.ALONE, *plain_trials.WORDED_ARMS)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([2, 4, 1], "The second document is the most relevant, then the fourth, then the first."),
        ([6], "The sixth document is the most relevant."),
    ],
)
def test_labels_in_words(labels, text):
    assert plain_trials.in_words(labels) == text


def test_a_second_turn_hints_at_the_answer_or_sends_it_again(asked):
    for each in of(asked, DEDUP):
        (answer,) = each.trial.answers
        assert tuple(each.trial.prompts) == (plain_trials.ALONE, *DEDUP_ARMS)
        assert holds(user(each.trial, REPEATED), answer)
        assert not any(holds(user(each.trial, arm), answer) for arm in (HINTED, DROPPED))
        assert holds(each.trial.prompts[HINTED][1]["content"], answer)
        assert not any(holds(message["content"], answer) for message in each.trial.prompts[CLOSED_BOOK])


def test_all_prompts_end_with_the_beginning_of_the_answer_and_are_short(asked):
    for each in asked:
        ends = {json.dumps(messages[-1]) for messages in each.trial.prompts.values()}
        assert len(ends) == 1 and '"assistant"' in ends.pop()
        assert max(sum(len(m["content"]) for m in messages) for messages in each.trial.prompts.values()) < 2_000


class Scripted:
    """Right or wrong over the answering passage alone; notes which arms it was asked."""

    def __init__(self, *, right):
        self.right, self.arms = right, []

    def score(self, prompts, answers):
        self.arms.extend(prompts)
        return {arm: {EXACT: float(self.right), LIKELIHOOD: -1.0} for arm in prompts}


@pytest.mark.parametrize("right", [True, False])
def test_only_what_is_answered_over_the_passage_alone_is_asked_in_the_arms(asked, right):
    model, prompts = Scripted(right=right), asked[0].trial.prompts
    scores = plain.ChoosingScorer(model).score(prompts, asked[0].trial.answers)
    assert list(scores) == model.arms == (list(prompts) if right else [plain_trials.ALONE])


def test_the_committed_figures_follow_from_the_committed_scores(monkeypatch):
    monkeypatch.delenv("CONTEXTPILOT_MODEL", raising=False)
    committed = json.loads((RESULTS / "plain.json").read_text("utf-8"))
    del committed["machine"]
    made = json.loads(json.dumps(plain.measure()), parse_float=lambda text: round(float(text), 6))
    assert made == json.loads(json.dumps(committed), parse_float=lambda text: round(float(text), 6))
    asked = len((RESULTS / "plain.scores.jsonl").read_text("utf-8").splitlines()) - 1
    assert sum(made["tried"].values()) == asked  # no score is of a question that is no longer asked
    assert made["order"]["all"][EXACT]["questions"] >= 600
