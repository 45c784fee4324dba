"""The note for documents without labels, and the contexts that it holds for."""

import copy

import pytest

from contextpilot_integrations.reorder.notes import OrderNotes, ordinal, ordinal_note

NOTE = "\n\nDocuments above by relevance: 2nd, 1st"


def test_ordinals():
    numbers = (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 101, 111, 112)
    expected = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 101st 111th 112th"
    assert " ".join(map(ordinal, numbers)) == expected


def test_the_note_names_places_best_first():
    assert ordinal_note([1, 0, 3, 2]) == "\n\nDocuments above by relevance: 2nd, 1st, 4th, 3rd"
    assert ordinal_note([6, 5, 4, 3, 2, 1, 0]).endswith(": 7th, 6th, 5th, 4th, 3rd")
    assert ordinal_note([0, 1, 2]) == ordinal_note([7, 9]) == ordinal_note([]) == ""


@pytest.mark.parametrize("context", ["tea a\n\nsalt b", "tea a\nsalt b", " tea  a salt b\n"])
def test_a_note_is_found_by_the_whole_context(context):
    notes = OrderNotes()
    notes.keep("q", ["tea a ", "\nsalt b"], [1, 0])
    assert notes.note("q", context) == NOTE
    assert copy.deepcopy(notes).note("q", context) == NOTE


@pytest.mark.parametrize(
    ("query", "context"),
    [
        ("p", "tea a\n\nsalt b"),
        ("q", "tea a"),
        ("q", "salt b\n\ntea a"),
        ("q", "tea a\n\nsalt b\n\nrice c"),
        ("q", "Source 1: tea a\n\nSource 2: salt b"),
        ("q", ""),
        ("", "tea a\n\nsalt b"),
        ("q tea a", "salt b"),
    ],
)
def test_every_other_prompt_has_none(query, context):
    notes = OrderNotes()
    notes.keep("q", ["tea a", "salt b"], [1, 0])
    assert notes.note(query, context) == ""


def test_an_order_by_relevance_has_none_and_the_oldest_are_forgotten():
    notes = OrderNotes(max_notes=1)
    notes.keep("q", ["a", "b"], [0, 1])
    assert notes.note("q", "a b") == ""
    notes.keep("q", ["a", "b"], [1, 0])
    notes.keep("p", ["a", "b"], [1, 0])
    assert (notes.note("q", "a b"), notes.note("p", "a b")) == ("", NOTE)
