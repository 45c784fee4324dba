"""A tool's text taken apart: what belongs to which document, what stays in its place, and what is left alone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import require

require("langchain_core")

from contextpilot_integrations.langchain.agent.parts import take_apart  # noqa: E402

TEXTS = ["Tea needs hot water.", "Milk is white.\n\nMostly.", "Salt keeps."]
SOURCES = ["a.pdf", "b c.pdf", "https://c.org/?x=1"]
BOTH = list(zip(SOURCES, TEXTS, strict=True))


def wholes(content, texts=TEXTS):
    parts = take_apart(content, texts)
    assert parts is not None
    assert parts.joined() == content
    return [part.whole for part in parts.parts]


def around(content, texts=TEXTS):
    return take_apart(content, texts).around


@pytest.mark.parametrize(
    "form", ["Source: {0}\nContent: {1}", "{0}\n{1}", "# {0}\n{1}", "({0}) {1}", "{1}\n({0})", "{1}"]
)
@pytest.mark.parametrize("between", ["\n\n", "\n\n---\n\n", "\n\n\n"])
def test_a_document_keeps_the_lines_at_its_text(form, between):
    each = [form.format(source, text) for source, text in BOTH]
    assert wholes(between.join(each)) == each
    assert around(between.join(each)) == ("", between, between, "")


@pytest.mark.parametrize(
    ("form", "between"),
    [
        ("- text: {1}\n  source: {0}", "\n"),
        ("<doc source='{0}'>{1}</doc>", "\n"),
        ("<doc>\n<from>{0}</from>\n<text>\n{1}\n</text>\n</doc>", "\n"),
        ("Source: {0}\nContent: {1}", "\n"),
        ("{1}\nfrom: {0}", "\n"),
        ("Source: {0}\nContent: {1}", "\n-----\n"),
    ],
)
def test_lines_without_a_blank_one_between_are_told_apart_by_their_form(form, between):
    each = [form.format(source, text) for source, text in BOTH]
    assert wholes(between.join(each)) == each


def test_a_header_and_a_footer_belong_to_no_document():
    each = [f"Source: {source}\nContent: {text}" for source, text in BOTH]
    for header, footer in (
        ("Found 3:\n\n", "\n\nThat is all."),
        ("Found:\n", "\nEnd."),
        ("", "\n\nEnd."),
        ("<x>\n", "\n</x>"),
    ):
        content = header + "\n\n".join(each) + footer
        assert wholes(content) == each
        assert around(content) == (header, "\n\n", "\n\n", footer)


@pytest.mark.parametrize("number", ["{0}. ", "[{0}] ", "({0}) ", "Document {0}:\n", "#{0}: ", "- {0}) "])
@pytest.mark.parametrize("first", [0, 1])
def test_a_number_that_counts_belongs_to_the_content(number, first):
    heads = [number.format(place) for place in range(first, first + 3)]
    content = "\n\n".join(f"{head}{source}\n{text}" for head, (source, text) in zip(heads, BOTH, strict=True))
    assert wholes(content) == [f"{source}\n{text}" for source, text in BOTH]
    assert around(content) == (heads[0], f"\n\n{heads[1]}", f"\n\n{heads[2]}", "")
    assert wholes(content[: content.index("\n\n")], TEXTS[:1]) == [f"{SOURCES[0]}\n{TEXTS[0]}"]


def test_numbers_that_do_not_count_belong_to_the_document():
    each = [f"Page {page}: {text}" for page, text in zip((7, 8, 9), TEXTS, strict=True)]
    assert wholes("\n\n".join(each)) == each


def test_a_form_that_counts_inside_stays_around_the_texts():
    each = [f"<doc index='{n}'>{text}</doc>" for n, text in enumerate(TEXTS, start=1)]
    assert wholes("\n".join(each)) == TEXTS
    assert wholes("\n\n".join(f"{text}\n(no. {n})" for n, text in enumerate(TEXTS, start=1))) == TEXTS


def test_a_title_behind_a_blank_line_stays_in_its_place():
    content = "\n\n".join(f"## {source}\n\n{text}" for source, text in BOTH)
    assert wholes(content) == TEXTS
    assert around(content)[0] == "## a.pdf\n\n"
    ruled = "\n----\n".join(f"Document {n}:\n\n{text}" for n, text in enumerate(TEXTS, start=1))
    assert wholes(ruled) == TEXTS


def test_no_document_gets_lines_of_its_neighbour():
    """What two could claim belongs to neither."""
    content = (
        "Results:\n" + "\n\n".join(f"{text}\n\nfrom {source}" for source, text in BOTH[:1]) + f"\n{TEXTS[2]}\n\nfrom x"
    )
    assert wholes(content, [TEXTS[0], TEXTS[2]]) == [TEXTS[0], TEXTS[2]]


def test_an_empty_document_is_left_out_and_its_lines_stay():
    content = "Source: a\nContent: One here.\n\nSource: b\nContent: \n\nSource: c\nContent: Three here."
    parts = take_apart(content, ["One here.", " \n", "Three here."])
    assert [(part.position, part.whole) for part in parts.parts] == [
        (0, "Source: a\nContent: One here."),
        (2, "Source: c\nContent: Three here."),
    ]
    assert parts.around[1] == "\n\nSource: b\nContent: \n\n"
    assert take_apart("nothing here", [""]) is None
    assert take_apart("nothing here", []) is None


def test_spaces_at_the_ends_of_a_text_do_not_matter():
    assert wholes("One here.\n\nTwo here.", [" One here.\n", "\tTwo here. "]) == ["One here.", "Two here."]
    assert around(" One here.\n\n\nTwo here.  ", [" One here.\n", "Two here.  "]) == (" ", "\n\n\n", "  ")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("A\n\nA B", ["A", "A B"]),
        ("A B\n\nA", ["A B", "A"]),
        ("A\n\nA", ["A", "A"]),
        ("A\n\nB\n\nB\n\nA", ["A", "B\n\nB", "A"]),
    ],
)
def test_texts_that_hold_each_other_are_found_where_there_is_one_way(content, texts):
    assert wholes(content, texts) == texts


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("tea\n\ntea", ["tea"]),
        ("Title: tea\ntea", ["tea"]),
        ("A\n\nB", ["B", "A"]),
        ("A\n\nB", ["A", "B", "C"]),
        ("one two three", ["one two", "two three"]),
        ("concatenate", ["cat"]),
        ("A B", ["A", "B"]),
        ("AB\n\nC", ["A", "B", "C"]),
        ("Tea needs ...", ["Tea needs hot water."]),
        ("Tom &amp; Ann", ["Tom & Ann"]),
    ],
    ids=[
        "again",
        "in a title",
        "other order",
        "one less",
        "overlap",
        "in a word",
        "one line",
        "no gap",
        "cut",
        "escaped",
    ],
)
def test_where_it_is_not_sure_nothing_is_taken_apart(content, texts):
    assert take_apart(content, texts) is None


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(TEXTS),
        json.dumps([TEXTS[0], TEXTS[2]], indent=2),
        json.dumps([{"source": s, "text": t} for s, t in BOTH], indent=1),
        "Results:\n" + json.dumps([{"text": TEXTS[0]}, {"text": TEXTS[2]}], indent=2),
        f"```\n{TEXTS[0]}\n```\n\n```\n{TEXTS[2]}\n```",
        f"| a | {TEXTS[0]} |\n| b | {TEXTS[2]} |",
    ],
)
def test_a_form_that_others_may_read_is_left_alone(content):  # D4
    assert take_apart(content, [TEXTS[0], TEXTS[2]]) is None


PIECES = st.text(alphabet="ab \n1.[]:-", max_size=8)


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(PIECES, max_size=4), gaps=st.lists(PIECES, min_size=5, max_size=5))
def test_whatever_is_taken_apart_can_be_put_together(texts, gaps):
    content = gaps[0] + "".join(text + gap for text, gap in zip(texts, gaps[1:], strict=False))
    parts = take_apart(content, texts)
    if parts is not None:
        assert parts.joined() == content
        assert len(parts.around) == len(parts.parts) + 1
        assert [part.text for part in parts.parts] == [text.strip() for text in texts if text.strip()]
        assert parts == take_apart(content, texts)


NAMES = st.text(alphabet="abcdefghij {}'\"&", min_size=1, max_size=9).filter(str.strip)


@settings(max_examples=150, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=5), data=st.data())
def test_whatever_stands_in_the_metadata_a_document_keeps_its_own(names, data):
    texts = [f"Text {n} tells what only text {n} can tell." for n in range(len(names))]
    header, footer = data.draw(
        st.sampled_from([("", ""), ("Found:\n\n", ""), ("", "\n\nEnd."), ("Found:\n\n", "\n\nEnd.")])
    )
    each = [f"Source: {{'source': {name!r}}}\nContent: {text}" for name, text in zip(names, texts, strict=True)]
    assert wholes(header + "\n\n".join(each) + footer, texts) == each
