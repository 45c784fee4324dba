"""The files of a replay: traces and corpora as JSON Lines, and what is said of damaged ones."""

import gzip
import json
from pathlib import Path

import pytest

from contextpilot_core import TraceError
from contextpilot_core.replay.traces import Document, TraceItem, load_corpus, load_trace


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(json.dumps(line) for line in lines)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def test_files(tmp_path: Path):
    corpus = write(tmp_path / "c.jsonl", {"id": "x", "text": "y" * 9}, {"id": "z", "text": None, "n_chars": 400})
    assert load_corpus([corpus]) == {"x": Document(2, "y" * 9), "z": Document(100, None)}
    trace = write(tmp_path / "t.jsonl.gz", {"query_id": "q", "doc_ids": ["x", "z"]})
    queries = write(tmp_path / "q.jsonl", {"id": "q", "evidence_ids": ["z"]})
    assert load_trace(trace, queries) == [TraceItem(("x", "z"), frozenset({"z"}))]
    talks = write(
        tmp_path / "talks.jsonl",
        {"turns": [{"doc_ids": ["a1"]}, {"doc_ids": ["a2"], "evidence_ids": ["a2"]}]},
        {"turns": [{"doc_ids": ["b1"]}]},
    )
    assert [item.doc_ids for item in load_trace(talks)] == [("a1",), ("b1",), ("a2",)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("{", "is no JSON that can be read .*at character 2"),
        ("[1]", "expected a JSON object"),
        ('{"doc_ids": "x"}', "list of texts or whole numbers"),
        ("{}", "list"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"doc_ids": [' + "9" * 5_000 + "]}", "a number has too many digits|list of texts"),
        ('{"turns": 5}', "a conversation needs 'turns', a list of contexts"),
        ('{"turns": null}', "a conversation needs 'turns'"),
        ('{"turns": ["x"]}', "a conversation needs 'turns'"),
        ('{"query_id": true, "doc_ids": ["x"]}', "'query_id' is a bool; it must be a text"),
        ('{"doc_ids": [1, true]}', "list of texts"),
        ('{"doc_ids": [1.0]}', "list of texts"),
        ('{"turns": [{"doc_ids": [null]}]}', "list of texts"),
        ('{"turns": [{"doc_ids": [], "evidence_ids": "x"}]}', "'evidence_ids' must be a list of texts or whole"),
        ('{"turns": [{"doc_ids": [], "evidence_ids": [[1]]}]}', "'evidence_ids' must be a list of texts or whole"),
        ('{"query_id": ["q"], "doc_ids": ["x"]}', "'query_id' is a list; it must be a text or a whole number"),
    ],
    ids=lambda value: value[:30],
)
def test_damaged_traces_are_refused_with_their_line(tmp_path: Path, line: str, rule: str):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"doc_ids": []}}\n{line}\n', encoding="utf-8")
    with pytest.raises(TraceError, match=rf"t\.jsonl, line 2: .*({rule})"):
        load_trace(path)
    with pytest.raises(TraceError, match="cannot be read"):
        load_trace(tmp_path / "absent.jsonl")
    with pytest.raises(TraceError, match="document needs"):
        load_corpus([write(tmp_path / "c.jsonl", {"id": 3.0, "text": "x"})])


@pytest.mark.parametrize(
    "line",
    [
        *({"id": "x", "text": 5}, {"id": "x", "text": ["a"]}, {"id": "x", "text": {"n_chars": 1}, "n_chars": 1}),
        *({"id": True, "text": "x"}, {"id": None, "text": "x"}, {"id": 1.5, "text": "x"}, {"text": "x"}),
        *(
            {"id": "x"},
            {"id": "x", "n_chars": 10**4000},
            {"id": "x", "n_chars": True},
            {"id": "x", "n_chars": -1},
            {"id": "x", "n_chars": "9"},
        ),
    ],
    ids=str,
)
def test_documents_without_a_text_or_its_size_are_refused_with_their_line(tmp_path: Path, line: object):
    with pytest.raises(TraceError, match=r"c\.jsonl, line 2: a document needs an 'id' .* and a 'text'"):
        load_corpus([write(tmp_path / "c.jsonl", {"id": "a", "text": "x"}, line)])


def test_queries_are_named_by_texts(tmp_path: Path):
    trace = write(tmp_path / "t.jsonl", {"query_id": "q", "doc_ids": ["x"]})
    queries = write(tmp_path / "q.jsonl", {"id": "q"}, {"id": {"q": 1}, "evidence_ids": ["x"]})
    with pytest.raises(TraceError, match=r"q\.jsonl, line 2: 'id' is a dict; it must be a text or a whole number"):
        load_trace(trace, queries)


def test_single_contexts_come_before_the_turns_of_conversations(tmp_path: Path):
    trace = write(
        tmp_path / "t.jsonl",
        {"turns": [{"doc_ids": ["a1"]}]},
        {"doc_ids": ["s1"]},
        {"turns": [{"doc_ids": ["b1"]}, {"doc_ids": ["b2"]}, {"doc_ids": ["b3"]}]},
        {"turns": []},
        {"turns": [{"doc_ids": ["c1"]}, {"doc_ids": []}]},
        {"doc_ids": ["s2"]},
    )
    found = [" ".join(item.doc_ids) for item in load_trace(trace)]
    assert found == ["s1", "s2", "a1", "b1", "c1", "b2", "", "b3"]


def test_evidence_is_what_the_queries_say_and_of_turns_what_they_say_themselves(tmp_path: Path):
    trace = write(
        tmp_path / "t.jsonl",
        {"query_id": "q", "doc_ids": ["x"]},
        {"query_id": "other", "doc_ids": ["x"]},
        {"doc_ids": ["x"], "evidence_ids": ["x"]},
        {"turns": [{"query_id": "q", "doc_ids": ["x"]}, {"doc_ids": [], "evidence_ids": [7, "x"]}]},
    )
    queries = write(tmp_path / "q.jsonl", {"id": "q", "evidence_ids": ["x", "y"]}, {"id": "other"})
    found = [item.evidence for item in load_trace(trace, queries)]
    assert found == [{"x", "y"}, set(), set(), set(), {"7", "x"}]


def test_corpora_are_read_one_after_the_other_and_blank_lines_are_none(tmp_path: Path):
    one = write(tmp_path / "one.jsonl.gz", {"id": "x", "text": "abcdefgh"}, {"id": "y", "text": ""})
    two = tmp_path / "two.jsonl"
    two.write_text('\n{"id": "x", "text": null, "n_chars": 3}\n  \n{"id": "é", "text": "éééé"}\n\n', encoding="utf-8")
    assert load_corpus([one, two]) == {"x": Document(1, None), "y": Document(1, ""), "é": Document(1, "éééé")}
    assert load_corpus([two, one])["x"] == Document(2, "abcdefgh")
    assert load_corpus([]) == {}


def damaged(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + b"\xff" * 6 + packed[middle + 6 :]


LINE = b'{"id": "x", "text": "x", "doc_ids": []}\n'


def test_whole_numbers_are_read_as_their_decimal_text(tmp_path: Path):
    corpus = write(tmp_path / "c.jsonl", {"id": 7, "text": "x"}, {"id": "07", "text": "x"}, {"id": -3, "n_chars": 8})
    assert load_corpus([corpus]) == {"7": Document(1, "x"), "07": Document(1, "x"), "-3": Document(2, None)}
    trace = write(
        tmp_path / "t.jsonl",
        {"query_id": 1, "doc_ids": [7, "7", "07"]},
        {"query_id": "2", "doc_ids": [-3]},
        {"turns": [{"doc_ids": [10**30], "evidence_ids": [7]}]},
    )
    queries = write(tmp_path / "q.jsonl", {"id": "1", "evidence_ids": [7]}, {"id": 2, "evidence_ids": ["-3"]})
    assert load_trace(trace, queries) == [
        TraceItem(("7", "7", "07"), frozenset({"7"})),
        TraceItem(("-3",), frozenset({"-3"})),
        TraceItem((str(10**30),), frozenset({"7"})),
    ]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, name: str):
    data = b"\xef\xbb\xbf" + b'{"id": "x", "text": "y", "doc_ids": ["x"]}\r\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert load_corpus([path]) == {"x": Document(1, "y")}
    assert load_trace(path) == [TraceItem(("x",))]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.jsonl.gz", gzip.compress(LINE * 9)[:-9]),
        ("t.jsonl.gz", damaged(gzip.compress(LINE * 200))),
        ("t.jsonl.gz", LINE),
        ("t.jsonl", LINE.replace(b"x", b"\xff")),
        ("t.jsonl", gzip.compress(LINE)),
        ("t.jsonl", LINE.decode().encode("utf-16")),
    ],
    ids=["cut short", "damaged", "not packed", "not UTF-8", "packed without saying so", "UTF-16"],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str, data: bytes):
    path = tmp_path / name
    path.write_bytes(data)
    for load in (load_trace, lambda path: load_corpus([path])):
        with pytest.raises(
            TraceError, match=r"t\.jsonl(\.gz)?(, behind line \d+)?: cannot be read .*give a \.jsonl or "
        ):
            load(path)


def test_a_file_that_is_cut_short_is_named_with_the_last_line_that_came(tmp_path: Path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(LINE * 5) + gzip.compress(LINE)[:-9])
    with pytest.raises(TraceError, match=r"t\.jsonl\.gz, behind line 6: cannot be read"):
        load_trace(path)


def test_errors_name_the_line_of_the_file(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"doc_ids": []}\n\n{"turns": [{"doc_ids": ["a"]}, {"doc_ids": ["a", 5.5]}]}\n', encoding="utf-8")
    with pytest.raises(TraceError, match=r"t\.jsonl, line 3: a context needs 'doc_ids'"):
        load_trace(path)
    with pytest.raises(TraceError, match=r"t\.jsonl, line 1: a document needs"):
        load_corpus([path])
