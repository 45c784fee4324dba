"""What fails beside an answer, and counters that fail on some texts."""

import asyncio

import pytest

from contextpilot_core import ConfigError, RequestTypeError, ReuseEngine, estimate_tokens
from contextpilot_integrations.serving.chat import Setting, contained
from contextpilot_integrations.serving.chat.containment import WindowCounter


def test_an_error_ends_in_the_log_without_its_words(caplog):
    with contained("telling"):
        raise ValueError("the text of a document")
    assert caplog.messages == ["telling failed (ValueError); the answer is given all the same"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_who_is_to_stop_stops(kind):
    with pytest.raises(kind), contained("telling"):
        raise kind


def test_a_text_on_which_a_counter_fails_is_estimated_and_said_once(caplog):
    def count(text):
        if "<|endoftext|>" in text:
            raise ValueError(f"disallowed special token in {text}")
        return len(text.split())

    counter = WindowCounter(count)
    text = "a secret <|endoftext|>"
    assert [counter(each) for each in ("a b", text, text, "c")] == [2, estimate_tokens(text), estimate_tokens(text), 1]
    assert len(caplog.messages) == 1 and "secret" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("5", RequestTypeError),
        (None, RequestTypeError),
        (1.5, RequestTypeError),
        (-1, ConfigError),
        (10**400, ConfigError),
        (10**5000, ConfigError),
    ],
    ids=["text", "none", "float", "negative", "400 digits", "5000 digits"],
)
def test_what_is_no_number_of_tokens_is_refused(answer, error):
    with pytest.raises(error, match="token_counter returned .* must return "):
        WindowCounter(lambda text: answer)("tea")


@pytest.mark.parametrize("counter", [5, None, "len"])
def test_what_cannot_be_called_is_no_counter(counter):
    with pytest.raises(ConfigError, match="token_counter=.* must be callable; give a function"):
        Setting(engine=ReuseEngine(), count=counter)
