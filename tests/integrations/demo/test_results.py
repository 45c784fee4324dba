"""The figures of a run, and how they are worded."""

from dataclasses import replace

from contextpilot_integrations.demo.results import Run, change, milliseconds, percent, share, tokens
from tests.integrations.demo_runs import HOSTILE, answer, arm


def test_figures_are_sums_with_answers_in_question_order(run: Run) -> None:
    figures = run.figures()
    assert set(figures["batch"]) == {"plain", "contextpilot"}
    assert set(figures["chat"]) == {"plain", "plain_append_only", "contextpilot"}
    ours = figures["batch"]["contextpilot"]
    assert ours.pop("answers") == [f"Answer {number} {HOSTILE}" for number in range(3)]
    assert ours == {
        "requests": 3,
        "prompt_tokens": 300,
        "cached_tokens": 120,
        "prefilled_tokens": 180,
        "ttft_ms_median": 500.0,
    }


def test_unknown_counts_are_null_and_never_zero() -> None:
    figures = arm("plain", answer(0), answer(1, cached=None, ttft=None)).figures()
    assert figures["prompt_tokens"] == 200
    assert figures["cached_tokens"] is figures["prefilled_tokens"] is figures["ttft_ms_median"] is None


def test_wording() -> None:
    assert [tokens(None), percent(None), milliseconds(None), change(None, 1), change(0, 1)] == ["unknown"] * 5
    assert [tokens(1234), percent(0.1234), milliseconds(85.4), milliseconds(2412)] == [
        "1,234",
        "12.3 %",
        "85 ms",
        "2.41 s",
    ]
    assert [change(100, 75), change(100, 110)] == ["−25 %", "+10 %"]


def test_an_arm_answers_in_question_order_and_keeps_how_it_was_sent(run: Run) -> None:
    ours = run.batch[1]
    assert [answer.number for answer in ours.sent] == [2, 0, 1]
    assert [answer.number for answer in ours.answers] == [0, 1, 2]


def test_prefilled_is_what_the_cache_did_not_hold() -> None:
    assert answer(0, cached=30).prefilled_tokens == 70
    assert answer(0, cached=0).prefilled_tokens == 100
    assert answer(0, cached=None).prefilled_tokens is None
    assert replace(answer(0), prompt_tokens=None).prefilled_tokens is None


def test_the_median_time_is_of_all_answers_or_unknown() -> None:
    times = [answer(number, ttft=time) for number, time in enumerate((500.0, 100.0, 900.0, 300.0))]
    assert arm("plain", *times).ttft_ms_median == 400.0
    assert arm("plain", *times[:3]).ttft_ms_median == 500.0
    assert arm("plain", *times, answer(4, ttft=None)).ttft_ms_median is None
    assert arm("plain").ttft_ms_median is None


def test_a_share_of_nothing_or_of_something_unknown_is_unknown() -> None:
    assert share(25, 100) == 0.25
    assert share(0, 100) == 0.0
    assert share(0, 0) is share(None, 100) is share(25, None) is None


def test_an_arm_of_no_requests_has_sums_of_nothing() -> None:
    assert (arm("plain").prompt_tokens, arm("plain").cached_tokens, arm("plain").answers) == (0, 0, ())
