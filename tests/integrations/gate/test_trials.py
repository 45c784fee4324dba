"""Which questions become trials, and that what was scored is not asked again."""

import pytest

from contextpilot_integrations.gate.arms import DEDUP_ARMS, ORDER_ARMS, ORIGINAL
from contextpilot_integrations.gate.cases import read_cases
from contextpilot_integrations.gate.records import ScoreFile
from contextpilot_integrations.gate.trials import DEDUP, ORDER, Trial, engine_orders, evaluate, make_trials
from tests.integrations import gate_servers as servers

TEXTS = tuple(f"Text number {number} says what nobody else says." for number in range(6))


class Counting:
    def __init__(self):
        self.asked = 0

    def score(self, prompts, answers):
        self.asked += 1
        return {arm: {"f1": 1 / 3} for arm in prompts}


def trial(number):
    return Trial(group="order", answers=("A",), prompts={ORIGINAL: [{"role": "user", "content": f"Q{number}"}]})


@pytest.mark.parametrize("mode", ["online", "batch"])
def test_orders_are_permutations_and_batches_move_too(mode):
    contexts = [[TEXTS[0], TEXTS[1]], [TEXTS[2], TEXTS[0], TEXTS[1]], [TEXTS[5]]]
    assert engine_orders(contexts, mode=mode) == [(0, 1), (1, 2, 0), (0,)]


def test_trials_are_the_questions_that_change(tmp_path):
    questions = [*servers.moved_questions(5), *servers.repeated_questions(2)]
    cases = read_cases(servers.write(tmp_path / "q.jsonl", questions))
    trials = make_trials(cases, mode="online", cache_tokens=None, instructions="", seed=0)
    assert [each.group for each in trials] == [ORDER] * 4 + [DEDUP] * 2
    assert len({each.key for each in trials}) == 6


def test_equal_documents_of_one_question_have_one_place():
    assert engine_orders([["A", "B", "A", "C", "B"]]) == [(0, 1, 3)]


def test_what_the_cache_no_longer_holds_moves_nothing():
    contexts = [[TEXTS[0], TEXTS[1]], [TEXTS[3], TEXTS[4]], [TEXTS[2], TEXTS[0], TEXTS[1]]]
    assert engine_orders(contexts, cache_tokens=20) == [(0, 1), (0, 1), (0, 1, 2)]
    assert engine_orders(contexts, cache_tokens=None) == [(0, 1), (0, 1), (1, 2, 0)]


def test_a_trial_asks_for_its_case_in_every_arm(tmp_path):
    questions = [*servers.moved_questions(2), *servers.repeated_questions(1)]
    named = [{**question, "cluster": f"cluster {number}"} for number, question in enumerate(questions)]
    cases = read_cases(servers.write(tmp_path / "q.jsonl", named))
    moved, repeated = make_trials(cases, mode="online", cache_tokens=None, instructions="Be brief.", seed=0)
    assert (moved.cluster, moved.answers) == ("cluster 1", cases[1].answers)
    assert (repeated.cluster, repeated.answers) == ("cluster 2", cases[2].answers)
    assert (tuple(moved.prompts), tuple(repeated.prompts)) == (ORDER_ARMS, DEDUP_ARMS)
    assert all(messages[-1]["content"].endswith(cases[1].query) for messages in moved.prompts.values())


def test_turns_that_repeat_nothing_are_no_trials(tmp_path):
    (question,) = servers.repeated_questions(1)
    question["earlier"][0]["documents"] = ["Something else that was never asked for."]
    cases = read_cases(servers.write(tmp_path / "q.jsonl", [question]))
    assert make_trials(cases, mode="online", cache_tokens=None, instructions="", seed=0) == []


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
