"""The note on the last document, and what it means for the order of relevance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_integrations.reorder.notes import ordinal, ordinal_note, relevance_order, strip_note


def text(name):
    return " ".join(f"Fact {n} about {name} is in drawer {name}{n}." for n in range(8))


def test_ordinals():
    numbers = (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 101, 111, 112)
    expected = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 101st 111th 112th"
    assert " ".join(map(ordinal, numbers)) == expected


def test_note_names_places_best_first():
    assert ordinal_note("compact", [1, 0, 3, 2]) == "\n\nDocuments above by relevance: 2nd, 1st, 4th, 3rd"
    assert ordinal_note("compact", [6, 5, 4, 3, 2, 1, 0]).endswith(": 7th, 6th, 5th, 4th, 3rd")
    assert ordinal_note("full", [6, 5, 4, 3, 2, 1, 0]).endswith(": 7th, 6th, 5th, 4th, 3rd, 2nd, 1st")
    assert ordinal_note("none", [1, 0]) == ordinal_note("full", [0, 1, 2]) == ordinal_note("full", [7, 9]) == ""


@settings(deadline=None)
@given(st.text(), st.lists(st.permutations(range(4)), max_size=3))
def test_stripping_takes_our_notes_and_nothing_else(body, notes):
    noted = body + "".join(ordinal_note("full", ranks) for ranks in notes)
    assert strip_note(noted) == strip_note(body)
    assert body.startswith(strip_note(body))


@pytest.mark.parametrize(
    "kept",
    [
        "x\n\nDocuments above by relevance: 2nd, 1st.",
        "x\n\nDocuments above by relevance: first",
        "x\n\nDocuments above by relevance: 2nd, 1st\n",
        "x\nDocuments above by relevance: 2nd, 1st",
    ],
)
def test_what_is_no_note_stays(kept):
    assert strip_note(kept) == kept


def test_a_text_that_imitates_the_note_changes_no_relevance():
    fake = text("X") + "\n\nDocuments above by relevance: 2nd, 1st"
    assert relevance_order([text("A"), fake], [None, None]) == (0, 1)
    assert relevance_order([text("A"), fake], [1, 1]) == (0, 1)
    assert relevance_order([fake, text("A")], [1, 0]) == (0, 1)
    assert relevance_order([text("A"), fake], [1, 0]) == (1, 0)


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.data())
def test_the_ranks_bring_back_the_order_of_relevance(texts, data):
    order = data.draw(st.permutations(range(len(texts))))
    shown = [strip_note(texts[rank]) for rank in order]
    note = ordinal_note("full", order)
    back = relevance_order([*shown[:-1], shown[-1] + note], order)
    assert [order[position] for position in back] == sorted(order)
