"""What tends to vary, found by pattern: each kind by example, and what only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.diagnose.masks import (
    LONGEST_MASKED,
    Skeleton,
    head_labels,
    mappings,
    names_now,
    numbers,
    skeleton,
)


@pytest.mark.parametrize(
    ("text", "kind", "blanked"),
    [
        ("Time: 10:59 am, ok", "clock", "10:59 am"),
        ("now=2026-05-03T10:59:01Z", "clock", "2026-05-03T10:59:01Z"),
        ("on 05/03/2026", "clock", "05/03/2026"),
        ("March 3rd, 2026 it was", "clock", "March 3rd, 2026"),
        ("since May 2026", "clock", "May 2026"),
        ("on Monday", "clock", "Monday"),
        ("at 1767225600", "clock", "1767225600"),
        ("score: 0.51 of all", "score", "score: 0.51"),
        ("(relevance 0.512) text", "score", "0.512"),
        ("{'similarity': np.float64(0.61)}", "score", "similarity': np.float64(0.61"),
        ("doc_id=ab-12 rest", "id", "doc_id=ab-12"),
        ("sessionId: x9", "id", "sessionId: x9"),
        ("see 123e4567-e89b-12d3-a456-426614174000", "id", "123e4567-e89b-12d3-a456-426614174000"),
        ("commit 4f2a9c7711ab", "id", "4f2a9c7711ab"),
        ("/tmp/a/b.md here", "path", "/tmp/a/b.md"),
        (r"in C:\x\y.md", "path", r"C:\x\y.md"),
        ("[Doc 3]", "rank_label", "[Doc 3"),
        ("Source 4: text", "rank_label", "Source 4"),
        ("3. text", "rank_label", "3"),
        ("rank: 3", "rank_label", "rank: 3"),
        ("Relevance: 4 1 2", "rank_label", "Relevance: 4 1 2"),
    ],
)
def test_each_kind_is_blanked_out(text: str, kind: str, blanked: str):
    found = skeleton(text)
    assert found.found == ((kind, blanked),)
    assert found.text == text.replace(blanked, f"\0{kind}\0")
    assert found.rest == len(text) - len(blanked)


@pytest.mark.parametrize(
    "text",
    [
        "Room 12 has 3 doors",
        "1234567890",  # no time since 1970 that anybody could mean
        "deadbeefcafe",  # a word, for all we know
        "version v1.25.3",
        "half of it, 0.5",
        "see [Doc 3]",  # not at the head
        "Chapter 3",
        "valid: 7",
        "and/or",
        "",
    ],
)
def test_what_only_looks_like_it_stays(text: str):
    assert skeleton(text) == Skeleton(text, (), len(text))


def test_a_unit_too_long_to_be_text_is_left_alone():
    text = "score: 0.51 " * (LONGEST_MASKED // 12)
    assert len(skeleton(text.ljust(LONGEST_MASKED)).found) == LONGEST_MASKED // 12
    assert skeleton(text.ljust(LONGEST_MASKED + 1)).found == ()


def test_the_kinds_that_differ_are_told_once_in_the_order_of_the_text():
    form = "[Doc {}] id: {} at {} and {}, score: {}"
    one = skeleton(form.format(1, "x1", "10:00", "11:00", 0.5))
    other = skeleton(form.format(1, "x2", "10:30", "11:30", 0.7))
    assert one.text == other.text
    assert one.changed(other) == ("id", "clock", "score")
    assert one.changed(one) == ()


pieces = st.sampled_from(["10:59", " ", "score: 0.51", "\n", "id: x", "Doc 1"])


@given(st.text(max_size=80) | st.lists(pieces).map("".join))
def test_blanks_and_the_rest_are_the_whole_text(text: str):
    found = skeleton(text)
    assert found.rest + sum(len(part) for _, part in found.found) == len(text)
    left = found.text
    for kind, part in found.found:
        left = left.replace(f"\0{kind}\0", part, 1)
    assert left == text or "\0" in text


@pytest.mark.parametrize(
    ("text", "speaks"),
    [("As of today", True), ("Current version", True), ("TIME is money", True), ("It knows", False), ("", False)],
)
def test_words_for_the_present(text: str, speaks: bool):
    assert names_now(text) is speaks


def test_labels_at_the_head_of_texts():
    texts = ["[1] a", "Doc 2: b", "3) c", "no 4", "5. d", "5.5 x", "#6] x", "12345] a", "- Result #7"]
    assert head_labels(texts) == (1, 2, 3, 5, 6, 7)
    assert numbers("a1b22 -3 4.5") == (1, 22, 3, 4, 5)
    assert numbers("\u0664") == ()  # ASCII digits only


def test_mappings_are_known_by_their_entries_in_any_order():
    text = "a {'x': 1, 'y': 2} b {'y': 2, 'x': 1} {1} \nk: v\nk2: v2\n\nz: 1\n"
    found = mappings(text)
    assert found == {
        ("'x': 1", "'y': 2"): (2, "'x': 1\n'y': 2"),
        ("k2: v2", "k: v"): (text.index("k: v"), "k: v\nk2: v2"),
    }
