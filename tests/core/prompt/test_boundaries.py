"""Where a text may be cut, and which texts are not cut at all."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.prompt.boundaries import is_structured, whole_words
from tests.core.prose import STRUCTURED, prose


@pytest.mark.parametrize("body", STRUCTURED)
def test_d4_what_has_a_form_is_structured(body: str) -> None:
    assert is_structured(body)
    assert is_structured(f"\n {body}\n\t")


@pytest.mark.parametrize(
    "body",
    ["", prose(21, 30), "[1] A reference in brackets.", '"Yes," he said, "no."', "a | b", "1. one\n2. two", "{x"],
)
def test_prose_is_not_structured(body: str) -> None:
    assert not is_structured(body)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
inner = st.recursive(plain, lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=3), more))


@given(st.text() | st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), st.sampled_from([0, 2]))
def test_json_is_structured_whatever_it_holds(value: object, indent: int) -> None:
    assert is_structured(json.dumps(value, indent=indent or None, ensure_ascii=False))


def test_json_that_nests_too_deeply_to_be_read_is_structured_by_its_edges() -> None:
    assert is_structured("[" * 100_000 + "]" * 100_000)
    assert not is_structured('"' + "[" * 100_000 + 'x"y"')


@pytest.mark.parametrize(
    ("body", "run", "kept"),
    [
        ("aaa bbb ccc ddd eee", (1, 18), "bbb ccc ddd"),
        ("aaa bbb ccc ddd eee", (0, 19), "aaa bbb ccc ddd eee"),
        ("First one. Second sentence is here. Third", (8, 37), "Second sentence is here."),
        ("First\nSecond line is here\nThird line", (3, 28), "Second line is here"),
        ("One. A very long sentence that goes on and on. Two", (6, 50), "very long sentence that goes on and on. Two"),
        ("x" * 100, (10, 90), ""),
        ("导入语句结合了两个操作，它先搜索指定名称的模块", (3, 20), "句结合了两个操作，它先搜索指定名称"),
        ("Pi is 3.14159 and more digits follow here", (0, 8), "Pi is"),
    ],
)
def test_runs_are_cut_back_to_whole_words(body: str, run: tuple[int, int], kept: str) -> None:
    start, end = whole_words(body, *run)
    assert body[start:end] == kept


@pytest.mark.parametrize(
    ("body", "run", "kept"),
    [
        ('He left. "Really?" She stayed at home. He', (3, 41), '"Really?" She stayed at home. He'),
        ("Who was it? (It was he.) Then they all went", (6, 38), "(It was he.) Then they all"),
        ("先搜索模块。然后绑定名称。最后返回结果给调用者", (3, 15), "然后绑定名称。"),
        ("か\u3099き\u3099く\u3099け\u3099こ\u3099", (1, 9), "き\u3099く\u3099け\u3099"),
    ],
)
def test_sentences_end_behind_their_quotes_and_accents_stay_with_their_letters(
    body: str, run: tuple[int, int], kept: str
) -> None:
    start, end = whole_words(body, *run)
    assert body[start:end] == kept


@settings(max_examples=500)
@given(st.text(st.sampled_from('ab.!" \n'), min_size=1, max_size=60), st.data())
def test_a_run_loses_no_half_words_and_at_most_a_quarter_at_each_end(body: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(body) - 1))
    until = data.draw(st.integers(begin + 1, len(body)))
    start, end = whole_words(body, begin, until)
    if start == end:
        inside = body[begin + (until - begin) // 4 : until - (until - begin) // 4]
        assert not inside.strip() or not _edge_near(body, begin, until)
        return
    slack = (until - begin) // 4
    assert begin <= start < end <= until
    assert body[start:end] == body[start:end].strip()
    assert start == 0 or body[start - 1].isspace()
    assert end == len(body) or body[end].isspace()
    assert not body[begin + slack : start].strip()
    assert not body[end : until - slack].strip()


def _parts_no_word(body: str, at: int) -> bool:
    if body[at - 1].isspace() or body[at].isspace():
        return True
    return body[at - 1] >= "\u2e80" and unicodedata.category(body[at])[0] != "M"


@settings(max_examples=500)
@given(st.text(st.sampled_from("ab \u3000\x1f\u0301か\u3099"), min_size=2, max_size=300), st.data())
def test_without_lines_and_sentences_the_nearest_edges_of_words_bound_a_run(body: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(body) - 1))
    end = data.draw(st.integers(start + 1, len(body)))
    slack = (end - start) // 4
    first = [at for at in range(start, start + slack + 1) if start == 0 or _parts_no_word(body, at)]
    last = [at for at in range(end - slack, end + 1) if end == len(body) or _parts_no_word(body, at)]
    found = whole_words(body, start, end)
    low, high = (first[0] if start else 0) if first else -1, (last[-1] if end < len(body) else end) if last else -1
    if not 0 <= low < high:
        assert found == (0, 0)
    else:
        span = body[low:high]
        assert found == (high - len(span.lstrip()), high - len(span.lstrip()) + len(span.strip()))


def _edge_near(body: str, begin: int, until: int) -> bool:
    """Tell whether both ends of a run have white space, or an end of the text, within a quarter of it."""
    slack = (until - begin) // 4
    edges = [at for at in range(len(body) + 1) if at in (0, len(body)) or body[at - 1].isspace() or body[at].isspace()]
    first = begin == 0 or any(begin <= at <= begin + slack for at in edges)
    return first and (until == len(body) or any(until - slack <= at <= until for at in edges))
