"""Token counting: the estimate, and answers of counters that are checked before they enter any sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.errors import ConfigError, RequestTypeError
from contextpilot_core.tokens import MOST_TOKENS, checked, estimate_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcdefg", 1),
        ("abcdefgh", 2),
        ("导入语句", 3),  # three bytes each
        ("\N{GRINNING FACE}" * 3, 3),
        ("\ud800" * 4, 3),  # half a character counts as one of its size
    ],
)
def test_a_quarter_of_the_bytes_and_at_least_one(text: str, tokens: int):
    assert estimate_tokens(text) == tokens


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text())
def test_longer_texts_never_weigh_less(text: str, more: str):
    assert estimate_tokens(text) == (max(1, len(text.encode()) // 4) if text else 0)
    assert estimate_tokens(text) <= estimate_tokens(text + more)


def test_the_estimate_needs_no_check():
    assert checked(estimate_tokens) is estimate_tokens


class Whole:
    """A whole number of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(("answer", "tokens"), [(0, 0), (7, 7), (True, 1), (Whole(9), 9), (MOST_TOKENS, 1 << 40)])
def test_whole_numbers_are_passed_on_as_ints(answer: object, tokens: int):
    found = checked(lambda text: answer)("text")  # type: ignore[arg-type,return-value]
    assert (found, type(found)) == (tokens, int)


@pytest.mark.parametrize("answer", [1.0, "1", None, [1]])
def test_what_is_no_whole_number_is_refused_without_the_text(answer: object):
    with pytest.raises(RequestTypeError, match=f"returned a {type(answer).__name__} for a text of 6 char") as caught:
        checked(lambda text: answer)("secret")  # type: ignore[arg-type,return-value]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("answer", [-1, Whole(-5), MOST_TOKENS + 1])
def test_a_number_outside_its_bounds_is_refused(answer: object):
    with pytest.raises(ConfigError, match=rf"returned -?\d+; it must return one from 0 to {MOST_TOKENS}"):
        checked(lambda text: answer)("text")  # type: ignore[arg-type,return-value]


def test_errors_of_the_counter_are_its_own():
    with pytest.raises(ZeroDivisionError):
        checked(lambda text: 1 // 0)("text")


def test_an_answer_that_cannot_be_written_is_refused_like_any_other():
    with pytest.raises(ConfigError, match="returned <int>; it must return one from 0"):
        checked(lambda text: 10**5000)("text")
