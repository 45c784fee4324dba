"""Order notes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.prompt.note import COMPACT_TOKENS, order_note
from contextpilot_core.tokens import estimate_tokens


def test_compact_names_the_best_five() -> None:
    assert order_note("compact", [4, 1, 2, 9, 3, 7, 8], estimate_tokens) == "Relevance: 4 1 2 9 3"


def test_full_names_all() -> None:
    note = order_note("full", [2, 1, 4], estimate_tokens)
    assert note == "Read the documents in this order of relevance: [Doc 2] > [Doc 1] > [Doc 4]"


@pytest.mark.parametrize("style", ["compact", "full", "none"])
@pytest.mark.parametrize("labels", [[], [3]])
def test_no_order_to_tell(style: str, labels: list[int]) -> None:
    assert order_note(style, labels, estimate_tokens) == ""  # type: ignore[arg-type]


def test_none_is_empty() -> None:
    assert order_note("none", [1, 2, 3], estimate_tokens) == ""


def test_compact_is_shortened_by_the_counter() -> None:
    assert order_note("compact", [100, 200, 300], len) == "Relevance: 100"
    assert order_note("compact", [1, 2, 3, 4, 5], len) == "Relevance: 1 2 3"
    assert order_note("compact", [123456, 2], len) == ""


@given(st.lists(st.integers(1, 10**6), unique=True, max_size=30), st.integers(1, 5))
def test_a_note_is_short_and_neutral(labels: list[int], per_token: int) -> None:
    def count(text: str) -> int:
        return len(text) // per_token

    note = order_note("compact", labels, count)
    assert count(note) <= COMPACT_TOKENS
    for text in (note, order_note("full", labels, count)):
        assert not set(text) & set("{}\n%")
        assert text == "" or len(labels) > 1
