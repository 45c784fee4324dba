from types import SimpleNamespace

import pytest

from contextpilot_integrations.serving.chat.usage import Usage, read_usage, scale_of, usual_tokens


def openai_form(details):
    return {"usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}}


@pytest.mark.parametrize(
    ("response", "cached"),
    [
        pytest.param({}, None, id="no usage"),
        pytest.param({"usage": None}, None, id="usage null"),
        pytest.param({"usage": {"prompt_tokens": 100}}, None, id="no details"),
        pytest.param(openai_form(None), None, id="details null"),
        pytest.param(openai_form({}), None, id="details empty"),
        pytest.param(openai_form({"cached_tokens": None}), None, id="cached null"),
        pytest.param(openai_form({"cached_tokens": 0}), 0, id="cached 0"),
        pytest.param(openai_form({"cached_tokens": 96}), 96, id="cached 96"),
        pytest.param(openai_form({"cached_tokens": "96"}), None, id="not a number"),
        pytest.param(openai_form({"cached_tokens": True}), None, id="a bool"),
        pytest.param(openai_form({"cached_tokens": -1}), None, id="negative"),
        pytest.param(openai_form({"cached_tokens": 10**400}), 100, id="more than a float holds"),
        pytest.param(openai_form({"cached_tokens": float("nan")}), None, id="no number at all"),
        pytest.param({"timings": {"cache_n": 0, "prompt_n": 7}}, 0, id="llama.cpp 0"),
        pytest.param({"timings": {"cache_n": 12, "prompt_n": 7}}, 12, id="llama.cpp 12"),
        pytest.param({**openai_form({"cached_tokens": 96}), "timings": {"cache_n": 12}}, 96, id="usage stands first"),
        pytest.param({**openai_form(None), "timings": {"cache_n": 12}}, 12, id="timings fill the gap"),
        pytest.param(
            {"usage_metadata": {"input_tokens": 9, "input_token_details": {"cache_read": 8}}}, 8, id="langchain"
        ),
        pytest.param({"usage_metadata": {"input_tokens": 9}}, None, id="langchain, no details"),
        pytest.param({"raw": openai_form({"cached_tokens": 64})}, 64, id="llama-index"),
    ],
)
def test_cached_tokens_unknown_is_not_zero(response, cached):
    assert read_usage(response).cached_tokens == cached


def test_reads_objects_as_it_reads_dicts():
    details = SimpleNamespace(cached_tokens=3)
    usage = SimpleNamespace(prompt_tokens=10, completion_tokens=2, prompt_tokens_details=details)
    assert read_usage(SimpleNamespace(usage=usage)) == Usage(prompt_tokens=10, completion_tokens=2, cached_tokens=3)


def test_timings_give_the_prompt_too():
    usage = read_usage({"timings": {"cache_n": 12, "prompt_n": 8, "predicted_n": 4}})
    assert usage == Usage(prompt_tokens=20, completion_tokens=4, cached_tokens=12)
    assert usage.prefilled_tokens == 8
    assert usage.hit_rate == 0.6


def test_rates_of_the_unknown_are_unknown():
    assert Usage(prompt_tokens=10).hit_rate is None
    assert Usage(prompt_tokens=10).prefilled_tokens is None
    assert Usage(cached_tokens=0, prompt_tokens=0).hit_rate is None


@pytest.mark.parametrize(
    "response",
    [
        openai_form({"cached_tokens": 10**15}),
        {"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}, "timings": {"cache_n": 3}},
        {"usage": {"prompt_tokens": 5}, "timings": {"cache_n": 64, "prompt_n": 1}},
        {"usage_metadata": {"input_tokens": 9, "input_token_details": {"cache_read": 10}}},
        {"raw": {"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}}},
    ],
)
def test_more_than_the_prompt_is_never_cached(response):
    usage = read_usage(response)
    assert (usage.hit_rate, usage.prefilled_tokens) == (1.0, 0)
    assert usage.cached_tokens == usage.prompt_tokens


@pytest.mark.parametrize("tokens", [10**15, 10**400, -1, float("nan"), float("inf"), True, "5", [5]])
def test_a_prompt_that_no_server_can_have_is_unknown(tokens):
    usage = read_usage({"usage": {"prompt_tokens": tokens, "completion_tokens": tokens}})
    assert usage == Usage()
    assert read_usage({"timings": {"cache_n": 2**40, "prompt_n": 2**40}}).prompt_tokens is None


def test_the_last_report_counts_and_nothing_is_added():
    usage = Usage()
    for piece in ({"usage": None}, openai_form({"cached_tokens": 64}), openai_form(None), {}):
        usage = usage.updated(read_usage(piece))
    assert usage == read_usage(openai_form({"cached_tokens": 64}))
    assert usage.updated(Usage(completion_tokens=9)).completion_tokens == 9


def test_a_piece_that_tells_of_no_prompt_takes_nothing_back():
    known = Usage(prompt_tokens=100, completion_tokens=3, cached_tokens=64)
    assert known.updated(Usage(prompt_tokens=0, completion_tokens=0, cached_tokens=0)) == known
    assert known.updated(Usage(prompt_tokens=0, completion_tokens=4)).completion_tokens == 4
    assert Usage().updated(Usage(prompt_tokens=0, cached_tokens=0)).updated(known) == known


NONSENSE = [float("nan"), float("inf"), -1, -0.5, True, "96", b"1", [], {}, object(), 10**400, 2**40 + 1, 3 + 0j]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
def test_what_is_no_number_of_tokens_is_unknown(value):
    usage = Usage(prompt_tokens=value, completion_tokens=value)
    assert usage == Usage()
    for response in (
        {"usage": {"prompt_tokens": value, "completion_tokens": value}},
        {"usage": value, "timings": value},
        {"usage_metadata": {"input_tokens": value, "output_tokens": value, "input_token_details": value}},
        {"timings": {"cache_n": None, "prompt_n": value, "predicted_n": value}},
        {"raw": {"usage": {"prompt_tokens": value}}},
        value,
    ):
        assert read_usage(response) == Usage()


def test_a_response_that_contains_itself_is_read_once():
    endless = {}
    endless["raw"] = endless
    assert read_usage(endless) == Usage()


@pytest.mark.parametrize(
    ("reported", "counted", "usual", "scale"),
    [
        (None, 10, 10, None),
        (0, 10, 10, None),
        (10, 0, 10, None),
        (10, -5, 10, None),
        (20, 10, 10, 2.0),
        (80, 10, 10, 8.0),
        (81, 10, 10, None),
        (5, 40, 40, 0.125),
        (4, 40, 40, None),
        (700, 1, 100, 700.0),  # words are counted, in a language that has no spaces
        (10**15, 10, 10, None),
        (1, 10**30, 10**30, None),
    ],
)
def test_a_scale_is_what_a_tokenizer_can_make_of_a_text(reported, counted, usual, scale):
    assert scale_of(reported, counted, usual) == scale


def test_the_usual_tokens_are_those_of_the_estimate():
    assert usual_tokens([{"role": "user", "content": "a" * 40}, {"role": "user", "content": None}]) == 4 + 10 + 4
