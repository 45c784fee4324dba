"""De-duplication: whole blocks in foreign messages, and spans inside blocks."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextpilot_core.config import DEFAULT_SPAN_HINT
from contextpilot_core.prompt import spans as dedup
from contextpilot_core.prompt.spans import (
    MAX_PARAGRAPHS,
    MIN_SPAN,
    Paragraphs,
    profile,
    sources_in,
    split_blocks,
)
from contextpilot_core.prompt.winnowing import MAX_TEXT, scan
from contextpilot_core.tokens import TokenCounter, estimate_tokens
from contextpilot_core.types import Segment, SpanSource
from tests.core.prose import HOSTILE, STRUCTURED, prose

Segments = tuple[Segment, ...]


def sources(label: int, text: str) -> tuple[SpanSource, ...]:
    return sources_in(text, [(label, 0, len(text))])


def split(
    *blocks: str, earlier: tuple[SpanSource, ...] = (), count: TokenCounter = estimate_tokens
) -> tuple[Segments, ...]:
    first = 1 + max((source.label for source in earlier), default=0)
    rows = list(enumerate(blocks, first))
    result = split_blocks(rows, earlier, span_hint=DEFAULT_SPAN_HINT, count=count)
    check_spans(rows, result, earlier, count)
    return result


def check_spans(
    rows: list[tuple[int, str]],
    result: tuple[Segments, ...],
    earlier: tuple[SpanSource, ...] = (),
    count: TokenCounter = estimate_tokens,
) -> None:
    """Check the promises of `split_blocks`: nothing lost, every hint resolves to literal text, none is dear."""
    literal: dict[int, list[str]] = {}
    for source in earlier:
        literal.setdefault(source.label, []).append(source.text)
    assert len(result) == len(rows)
    for (label, body), segments in zip(rows, result, strict=True):
        assert "".join(segment.text for segment in segments) == body
        for before, after in itertools.pairwise(segments):
            assert before.label is not None or after.label is not None
        for segment in segments:
            if segment.label is not None:
                assert any(segment.text in text for text in literal[segment.label])
                assert count(segment.text) > count(DEFAULT_SPAN_HINT.replace("{label}", str(segment.label)))
                assert segment.text == segment.text.strip()
                assert len(segment.text) >= MIN_SPAN
        literal.setdefault(label, []).extend(segment.text for segment in segments if segment.label is None)


def replaced(segments: Segments) -> list[tuple[int, str]]:
    return [(segment.label, segment.text) for segment in segments if segment.label is not None]


# --- whole blocks in foreign messages


def shows(text: str, body: str) -> bool:
    found = Paragraphs([(profile(text), text)]).show(body)
    others = [(profile(other), other) for other in ("", "another\n\nmessage", f"Z{body.strip()}")]
    assert Paragraphs([*others, (profile(text), text), *others]).show(body) == found
    assert not Paragraphs([]).show(body)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "the body",
        "before\n\nthe body",
        "the body\n\nafter",
        "before\n \t\nthe body\r\n\r\nafter",
        "  the body\n",
        "\n\n\nbefore\n\n\nthe body\n\n\n\nafter",
        "the body, not\n\nthe body",
        "\n\n".join(["the body"] * 50),
    ],
)
def test_a_block_between_blank_lines_is_shown(text: str) -> None:
    assert shows(text, "the body")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the",
        "the body.",
        "see the body",
        "before\nthe body",
        "the body\nafter",
        "the  body",
        "The body",
        "the\n\nbody",
    ],
)
def test_a_block_is_shown_whole_or_not_at_all(text: str) -> None:
    assert not shows(text, "the body")


@pytest.mark.parametrize("body", ["", " ", "\n\n", "\u00a0\n \n\u2028"])
def test_blank_bodies_are_never_shown(body: str) -> None:
    assert not shows("text\n\n\n\ntext", body)
    assert not shows(body, body)


def test_a_block_of_paragraphs() -> None:
    heading = "\n\n".join(f"Heading\n\ntext {n}\n\nHeading" for n in range(40))
    assert shows(heading, "Heading\n\ntext 30\n\nHeading")
    assert shows(heading, "text 3\n\nHeading\n\nHeading\n\ntext 4")
    assert not shows(heading, "text 3\n\nHeading\n\ntext 4")
    assert not shows(heading, "text 3\n\nHeading\n\n\nHeading")
    assert shows("a\n\n  indented\n\n", "  indented\n")


def test_never_by_checksum_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda data: 7)
    assert not shows("one\n\ntwo\n\nthree", "four")
    assert shows("one\n\ntwo\n\nthree", "two")


def test_d8_a_profile_is_bounded() -> None:
    text = "\n\n".join(f"paragraph {n}" for n in range(50_000))
    marks = profile(text)
    assert len(marks.paragraphs) == MAX_PARAGRAPHS
    paragraphs = Paragraphs([(marks, text)])
    assert paragraphs.show("paragraph 17\n\nparagraph 18")
    assert not paragraphs.show("paragraph 49999")  # beyond the bound: sent in full, nothing is lost


@given(st.lists(st.text(st.sampled_from("ab \n\t\r\u2028")), max_size=8), st.text(st.sampled_from("ab \n"), max_size=6))
def test_shown_means_shown(parts: list[str], body: str) -> None:
    text = "\n\n".join(parts)
    if shows(text, body):
        assert body.strip()
        assert body in text
    if body and body == body.strip():
        assert shows(f"x\n\n{body}\n\ny", body)


# --- spans


def test_disjoint_blocks_stay_whole() -> None:
    rows = [prose(seed, 40) for seed in range(15)]
    assert split(*rows) == tuple((Segment(body),) for body in rows)
    assert split() == ()
    assert split("") == ((Segment(""),),)


def test_d7_a_prefix_of_another_block() -> None:
    start = prose(1, 20) + "."
    whole = start + " " + prose(2, 30)
    assert split(start, whole)[1] == (Segment(start, 1), Segment(whole[len(start) :]))
    assert split(whole, start)[1] == (Segment(start, 1),)


def test_d7_chunks_with_an_overlap_of_200_characters() -> None:
    text = prose(3, 400)
    chunks = [text[at : at + 800] for at in range(0, len(text) - 800, 600)]
    result = split(*chunks)
    assert replaced(result[0]) == []
    for number, segments in enumerate(result[1:], 1):
        [(label, span)] = replaced(segments)
        assert label == number
        assert 100 <= len(span) <= 200
        assert span in chunks[number][:200]


def test_d7_no_chain_of_hints() -> None:
    shared = prose(4, 30) + "."
    result = split(shared + " " + prose(5, 20), shared, prose(6, 20) + " " + shared, shared + " " + prose(7, 20))
    assert [label for segments in result for label, _ in replaced(segments)] == [1, 1, 1]


def test_near_identical_passages() -> None:
    sentences = [f"{prose(seed, 12)}." for seed in range(10)]
    changed = [*sentences[:5], "Something else stands here now.", *sentences[6:]]
    [_, segments] = split(" ".join(sentences), " ".join(changed))
    assert [span for _, span in replaced(segments)] == [" ".join(sentences[:5]), " ".join(sentences[6:])]


def test_the_longest_run_then_the_earliest_source_wins() -> None:
    shared = prose(8, 30)
    earlier = sources(1, shared[:150]) + sources(2, shared)
    assert replaced(split(shared, earlier=earlier)[0]) == [(2, shared)]
    earlier = sources(3, shared) + sources(4, shared)
    assert replaced(split(shared, earlier=earlier)[0]) == [(3, shared)]


def test_a_block_whose_label_is_unclear_is_no_source() -> None:
    shared, own = prose(9, 30), prose(10, 30)
    rows = [(1, shared), (2, f"{own} {shared}"), (3, f"{shared} {own}")]
    found = split_blocks(rows, (), span_hint=DEFAULT_SPAN_HINT, count=estimate_tokens, unclear={1})
    assert [[label for label, _ in replaced(segments)] for segments in found] == [[], [], [2, 2]]
    found = split_blocks(rows, (), span_hint=DEFAULT_SPAN_HINT, count=estimate_tokens, unclear={1, 2})
    assert [replaced(segments) for segments in found] == [[], [], []]


def test_what_a_text_does_not_show_as_its_own_is_no_source() -> None:
    shared, rest = prose(12, 30), prose(13, 30)
    made = sources_in(f"{shared}{rest}", [(1, len(shared), len(rest))])
    assert [(source.label, source.text) for source in made] == [(1, rest)]
    assert split(shared, earlier=made) == ((Segment(shared),),)
    assert replaced(split(rest, earlier=made)[0]) == [(1, rest)]


def test_sources_in_a_rendered_text() -> None:
    one, two = prose(14, 30), prose(15, 30)
    text = f"[Doc 1]\n===\n{one}\n===\n[Doc 2]\n===\n{two}\n==="
    made = sources_in(text, [(1, text.index(one), len(one)), (2, text.index(two), len(two)), (2, 0, 5)])
    assert made == sources(1, one) + sources(2, two)
    assert [source.anchors for source in made] == [scan([text]).tables()[0] for text in (one, two)]
    assert sources_in(text, []) == sources_in(text, [(1, 0, MIN_SPAN - 1)]) == ()


def test_a_span_that_is_no_longer_than_its_hint_stays() -> None:
    shared = prose(16, 30)
    assert replaced(split(shared, shared + " tail", count=lambda text: 7)[1]) == []
    assert replaced(split(shared, shared + " tail", count=len)[1]) == [(1, shared)]
    assert replaced(split(shared[:40], shared[:40] + " tail")[1]) == []


def test_d10_a_span_hint_with_braces_is_literal() -> None:
    shared = prose(18, 30)
    seen: list[str] = []

    def count(text: str) -> int:
        seen.append(text)
        return len(text)

    split_blocks([(1, shared), (2, shared + " z")], (), span_hint="{0} %s {label}", count=count)
    assert "{0} %s 1" in seen


@pytest.mark.parametrize("body", STRUCTURED)
def test_d4_structured_bodies_are_sent_whole(body: str) -> None:
    assert split(body, body + "\n", body)[1:] == ((Segment(body + "\n"),), (Segment(body),))


def test_long_bodies_are_sent_whole() -> None:
    body = prose(22, 40_000)[: MAX_TEXT + 1]
    assert len(body) > MAX_TEXT
    assert split(body, body + "x") == ((Segment(body),), (Segment(body + "x"),))


pieces = st.one_of(
    st.sampled_from(HOSTILE),
    st.integers(0, 12).map(lambda seed: prose(seed, 12) + "."),
    st.integers(0, 12).map(lambda seed: prose(seed, 12)[3:-5]),
    st.text(st.characters(), max_size=30),
    st.text(st.sampled_from("ab \n."), max_size=120),
)
generated = st.lists(st.tuples(pieces, st.sampled_from(["", " ", "\n", "\n\n"])), max_size=6).map(
    lambda parts: "".join(text + gap for text, gap in parts)
)


@given(st.lists(generated, max_size=6), st.lists(generated, max_size=3))
@settings(max_examples=300, deadline=None)
@example(["a" * 300, "a" * 900, "ab" * 500], ["a" * 100])
def test_spans_lose_nothing(rows: list[str], before: list[str]) -> None:
    earlier = tuple(source for label, text in enumerate(before, 1) for source in sources(label, text))
    split(*rows, earlier=earlier)


@given(st.lists(generated, min_size=1, max_size=5), st.lists(generated, max_size=3))
@settings(max_examples=150, deadline=None)
def test_later_blocks_never_change_earlier_ones(rows: list[str], later: list[str]) -> None:
    assert split(*rows, *later)[: len(rows)] == split(*rows)


@given(st.integers(0, 10**6), st.integers(100, 400), st.integers(440, 900))
@settings(max_examples=60, deadline=None)
def test_overlapping_windows(seed: int, words: int, size: int) -> None:
    text = prose(seed, words)
    rows = [text[at : at + size] for at in range(0, len(text), size - 200)]
    result = split(*rows)
    for segments, body in zip(result[1:], rows[1:], strict=True):
        if len(body) >= 200:
            assert sum(len(span) for _, span in replaced(segments)) >= 100


@given(st.integers(0, 10**6), st.integers(0, 400), st.integers(0, 400), st.integers(0, 400), st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_a_long_common_run_is_always_found(seed: int, a: int, b: int, c: int, d: int) -> None:
    shared = prose(seed, 14)
    left, right, before, after = (prose(seed + n, 70)[:size] for n, size in ((1, a), (2, b), (3, c), (4, d)))
    [_, segments] = split(f"{left} {shared} {right}", f"{before} {shared} {after}")
    assert sum(len(span) for _, span in replaced(segments)) >= len(shared) // 2


def test_work_on_hostile_texts_is_bounded() -> None:
    """Count the comparisons: a text of 200,000 characters must not be compared with itself again and again."""
    calls = 0
    common_run = dedup._common_run

    def counted(*arguments: object) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        return common_run(*arguments)  # type: ignore[arg-type]

    coin = random.Random(5)
    noise = "".join(coin.choice("ab") for _ in range(200_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedup, "_common_run", counted)
        for text in ("a" * 200_000, "ab" * 100_000, noise, "word " * 40_000):
            split(text[:1_000], text[:50_000], text)
    assert calls < 5_000


@pytest.mark.parametrize("period", [3, 33, 64, 400, 5_000])
@pytest.mark.parametrize("gap", ["", " ", "。", "\u0301"])
def test_runs_that_are_refused_are_looked_at_a_bounded_number_of_times(period: int, gap: str) -> None:
    """Count characters: a text without boundaries that repeats itself is like itself at every shift."""
    looked_at = 0
    common_run = dedup._common_run

    def counted(*arguments: object) -> tuple[int, int]:
        nonlocal looked_at
        start, end = common_run(*arguments)  # type: ignore[arg-type]
        looked_at += end - start
        return start, end

    unit = "".join(random.Random(period).choices("abcdefgh", k=period)) + gap
    text = unit * (100_000 // len(unit))
    rows = [text, f"X{text}", text[777:] + "Y" + text[:777]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedup, "_common_run", counted)
        split(*rows, earlier=sources(9, text))
    assert looked_at < 9 * 4 * len("".join(rows))


@pytest.mark.parametrize("gap", ["", "g "])
def test_the_anchors_of_what_is_shown_literally_are_found_behind_many_spans(gap: str) -> None:
    rows = [prose(seed, 12) + ". " for seed in range(60)]
    shuffled = random.Random(1).sample(rows, len(rows))
    own = prose(99, 14)
    again = split("".join(rows), gap.join(shuffled) + own, own)
    assert len(replaced(again[1])) > 40
    assert [span for _, span in replaced(again[2])] == [own]


def test_p16_same_bytes_under_any_hash_seed() -> None:
    script = (
        "import hashlib, random\n"
        "from contextpilot_core import tokens\n"
        "from contextpilot_core.prompt import spans as dedup\n"
        "pick = random.Random(3)\n"
        "text = ' '.join(f'w{pick.randrange(10**6)}' for _ in range(900))\n"
        "rows = [(n, text[n * 90 : n * 90 + 600]) for n in range(1, 40)]\n"
        "earlier = dedup.sources_in(text, [(90, 0, 3000), (91, 90, len(text) - 90)])\n"
        "result = dedup.split_blocks(rows, earlier, span_hint='(see {label})', count=tokens.estimate_tokens)\n"
        "print(hashlib.sha256(repr((result, dedup.profile(text))).encode()).hexdigest())\n"
    )
    root = str(Path(dedup.__file__).parents[2])
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.environ.get("PYTHONPATH", root)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) == 65


@given(st.text(st.sampled_from("ab"), max_size=200), st.text(st.sampled_from("ab"), max_size=200), st.data())
def test_a_common_run_goes_as_far_as_the_texts_are_equal(one: str, other: str, data: st.DataObject) -> None:
    head = data.draw(st.integers(0, 90))
    body, text = one + "b" * head + other, other + "b" * head + one
    at, there = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, len(text)))
    floor = data.draw(st.integers(0, at))
    ahead = behind = 0
    while body[at + ahead : at + ahead + 1] and body[at + ahead] == text[there + ahead : there + ahead + 1]:
        ahead += 1
    while behind < min(at - floor, there) and body[at - behind - 1] == text[there - behind - 1]:
        behind += 1
    assert dedup._common_run(body, at, text, there, floor) == (at - behind, at + ahead)
