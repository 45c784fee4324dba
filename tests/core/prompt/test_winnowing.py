"""Anchors: few, the same wherever a text stands, and shared by texts that share a run."""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contextpilot_core.prompt.winnowing import CERTAIN, GRAM, MAX_TEXT, scan
from tests.core.prose import HOSTILE, prose

FOX = {1797146726: 0, 90849754: 3, 1247724638: 4, 1398793676: 10, 2344159531: 11}

texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=200), st.text("ab", max_size=200))


def anchors(text: str) -> dict[int, int]:
    return scan([text]).tables()[0]


def winnowed(text: str) -> list[tuple[int, int]]:
    """Return (offset, hash) as the definition has it: the least of some 32 neighbouring windows, those beyond void."""
    hashes = []
    for at in range(len(text) - GRAM + 1):
        value = 0
        for character in text[at : at + GRAM]:
            value = (value * 0x9E3779B1 + ord(character)) & 0xFFFFFFFF
        hashes.append(value * 0x86659FD3 & 0xFFFFFFFF)
    chosen = set()
    for first in range(1 - GRAM, len(hashes)):
        group = hashes[max(0, first) : first + GRAM]
        chosen.update(max(0, first) + at for at, value in enumerate(group) if value == min(group))
    return [(at, hashes[at]) for at in sorted(chosen)]


@settings(deadline=None)
@given(texts)
def test_anchors_are_what_the_definition_says(text: str) -> None:
    assert anchors(text) == {key: at for at, key in reversed(winnowed(text))}


@settings(deadline=None)
@given(st.lists(texts, max_size=4), texts, st.sets(st.integers(0, 2**32 - 1), max_size=2))
def test_marks_are_the_anchors_that_occur_again_or_are_known(rows: list[str], other: str, strange: set[int]) -> None:
    every, known = [winnowed(text) for text in rows], {*anchors(other), *strange}
    found = [[own[n] for n in range(len(own)) if not n or own[n - 1][1] != own[n][1]] for own in every]
    uses = Counter(key for own in found for _, key in own)
    expected = [[(at, key) for at, key in own if uses[key] > 1 or key in known] for own in found]
    assert scan(rows).marks(known) == expected


def test_what_occurs_once_and_is_unknown_has_no_mark() -> None:
    text = prose(1, 60)
    every = [sorted((at, key) for key, at in anchors(text).items())]
    assert scan([text]).marks() == [[]]
    assert scan([text, text]).marks() == every * 2
    assert scan([text]).marks(anchors(text)) == every


@given(texts, st.text(st.characters(), min_size=CERTAIN, max_size=90), texts, texts, texts)
@settings(max_examples=200)
def test_a_shared_run_has_a_shared_anchor(a: str, run: str, b: str, c: str, d: str) -> None:
    assume(len(set(run)) > 40)  # a run of short period may be known by another place
    one, other = anchors(a + run + b), anchors(c + run + d)
    shared = [key for key in one if key in other]
    assert any((c + run + d)[other[key] : other[key] + GRAM] in a + run + b for key in shared)


@given(st.lists(texts, max_size=6))
def test_anchors_of_a_text_do_not_depend_on_its_neighbours(rows: list[str]) -> None:
    tables = scan(rows).tables()
    for number, text in enumerate(rows):
        assert tables[number] == anchors(text)
        assert all(0 <= at <= len(text) - GRAM for at in anchors(text).values())


def test_anchors_are_few_and_stable() -> None:
    text = prose(1, 200)
    assert len(text) / 40 < len(anchors(text)) < len(text) / 8
    assert len(anchors("a" * 100_000)) == 1
    assert anchors("short") == {}
    assert anchors("a" * (MAX_TEXT + 1)) == {}
    assert anchors("the quick brown fox jumps over the lazy dog") == FOX


@given(st.lists(texts, max_size=8), st.integers(0, 300))
def test_anchors_do_not_depend_on_how_many_texts_are_scanned_together(rows: list[str], batch: int) -> None:
    found = scan(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contextpilot_core.prompt.winnowing._BATCH", batch)
        parts = scan(rows)
    assert (parts.tables(), parts.starts) == (found.tables(), found.starts)
    assert parts.marks() == found.marks()


def test_long_texts_are_scanned_one_by_one() -> None:
    rows = [prose(seed, 20_000)[:MAX_TEXT] for seed in range(5)]
    found = scan(rows)
    assert sum(map(len, rows)) > 1 << 20
    assert found.tables() == [anchors(text) for text in rows]
    assert scan([*rows, rows[0]]).marks()[0] == sorted((at, key) for key, at in anchors(rows[0]).items())
