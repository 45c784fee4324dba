"""``contextpilot-rag replay`` as a user types it."""

import gzip
import json
from pathlib import Path

import pytest

from tests.integrations import command_line
from tests.integrations.hostile_json import BROKEN, VALUES, one_line

KEYS = [
    "contexts", "tokens", "reused_tokens", "reuse", "note_tokens", "net_reuse", "upper_bound", "build_seconds",
    "plan_us_p50", "plan_us_p99", "peak_rss_mb",
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    corpus, trace = tmp_path / "corpus.jsonl", tmp_path / "trace.jsonl"
    corpus.write_text("".join(json.dumps({"id": name, "text": name * 400}) + "\n" for name in "abcd"))
    contexts = ["ab", "cab", "dba", ""]
    trace.write_text("".join(json.dumps({"query_id": ids, "doc_ids": list(ids)}) + "\n" for ids in contexts))
    return [str(trace), "--corpus", str(corpus)]


def run(*arguments: str) -> command_line.Done:
    return command_line.run("replay", *arguments)


@pytest.mark.parametrize("mode", ["offline", "online", "window"])
@pytest.mark.parametrize("strategy", ["greedy", "paper", "none"])
def test_json(files: list[str], mode: str, strategy: str):
    done = run(*files, "--mode", mode, "--strategy", strategy, "--json")
    assert done.exit_code == 0, done.stderr
    figures = json.loads(done.stdout)
    assert list(figures)[: len(KEYS)] == KEYS
    assert (figures["contexts"], figures["tokens"], figures["note_tokens"]) == (3, 800, 0)
    assert figures["reused_tokens"] == (0 if strategy == "none" else 400)
    assert figures["reuse"] == figures["net_reuse"]
    assert figures["retrieval_order"] == {"tokens": 800, "reused_tokens": 0, "reuse": 0.0}


@pytest.mark.parametrize(
    "options",
    [
        ["--mode", "online", "--note", "compact"],
        ["--mode", "window", "--window", "2", "--kv-block", "64"],
        ["--strategy", "paper", "--schedule", "paper", "--cache-tokens", "150"],
        ["--mode", "online", "--identity", "text", "--top-k", "2"],
        ["--mode", "online", "--top-k", "2", "--candidates", "3", "--pinned", "1"],
    ],
    ids=" ".join,
)
def test_the_baseline_is_the_same_cache_in_retrieval_order(tmp_path: Path, options: list[str]):
    corpus, trace = tmp_path / "corpus.jsonl", tmp_path / "trace.jsonl"
    texts = {"a": "x" * 400, "b": "y" * 404, "c": "z" * 800, "d": "x" * 400}
    corpus.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    trace.write_text("".join(json.dumps({"doc_ids": list(ids)}) + "\n" for ids in ("ab", "acb", "dba", "abd", "cab")))
    files = [str(trace), "--corpus", str(corpus)]
    found = json.loads(run(*files, *options, "--json").stdout)["retrieval_order"]
    named = dict(zip(options[::2], options[1::2], strict=True))
    kept = [part for name in ("--kv-block", "--cache-tokens", "--identity", "--top-k") if name in named
            for part in (name, named[name])]  # fmt: skip
    plain = json.loads(run(*files, *kept, "--strategy", "none", "--mode", "online", "--json").stdout)
    assert found == {name: plain[name] for name in found}
    assert found["reused_tokens"] > 0
    assert f"{found['reuse']:.1%}" in run(*files, *options).stdout


def test_the_size_of_a_window(files: list[str]):
    small = ["--cache-tokens", "300", "--mode", "window", "--json"]
    alone, together = run(*files, *small, "--window", "1"), run(*files, *small, "--window", "2")
    assert (alone.exit_code, together.exit_code) == (0, 0)
    assert json.loads(alone.stdout)["reused_tokens"] <= json.loads(together.stdout)["reused_tokens"]


def test_table_notes_selection_and_an_unbounded_cache(files: list[str]):
    done = run(*files, "--mode", "online", "--note", "compact", "--kv-block", "16", "--cache-tokens", "0")
    assert done.exit_code == 0
    assert "net_reuse" in done.stdout
    picked = run(*files, "--mode", "online", "--top-k", "2", "--candidates", "3", "--pinned", "1", "--json")
    assert json.loads(picked.stdout)["tokens"] == 600
    assert run(*files, "--identity", "text", "--schedule", "arrival", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--candidates", "20"], "belong together"),
        (["--strategy", "best"], "greedy"),
        (["--top-k", "0"], "top-k"),
        (["--mode", "window", "--window", "0"], "window"),
        (["--candidates", "3", "--pinned", "99"], "pinned=99"),
    ],
)
def test_refusals_say_why(files: list[str], extra: list[str], said: str):
    done = run(*files, *extra)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_missing_document_names_the_option(files: list[str], tmp_path: Path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"id": "a", "text": "x"}) + "\n")
    done = run(files[0], "--corpus", str(other))
    assert done.exit_code == 2
    assert "--corpus" in done.stderr


def test_files_without_content_are_refused(files: list[str], tmp_path: Path):
    empty, queries = tmp_path / "empty.jsonl", tmp_path / "queries.jsonl"
    empty.write_text(json.dumps({"query_id": "q", "doc_ids": []}) + "\n")
    queries.write_text(json.dumps({"id": "ab"}) + "\n")
    for arguments, said in (([str(empty), *files[1:]], "doc_ids"), ([*files, "--queries", str(queries)], "evidence")):
        done = run(*arguments)
        assert done.exit_code == 2
        assert said in done.stderr


PLACES = {
    "a line": ("trace", "VALUE"),
    "query_id": ("trace", '{"query_id": VALUE, "doc_ids": ["a"]}'),
    "doc_ids": ("trace", '{"doc_ids": VALUE}'),
    "an id": ("trace", '{"doc_ids": ["a", VALUE]}'),
    "turns": ("trace", '{"turns": VALUE}'),
    "a turn": ("trace", '{"turns": [VALUE]}'),
    "ids of a turn": ("trace", '{"turns": [{"doc_ids": VALUE}]}'),
    "evidence of a turn": ("trace", '{"turns": [{"doc_ids": ["a"], "evidence_ids": VALUE}]}'),
    "a document": ("corpus", "VALUE"),
    "id": ("corpus", '{"id": VALUE, "text": "x"}'),
    "text": ("corpus", '{"id": "a", "text": VALUE}'),
    "n_chars": ("corpus", '{"id": "a", "text": null, "n_chars": VALUE}'),
    "a query": ("queries", "VALUE"),
    "id of a query": ("queries", '{"id": VALUE, "evidence_ids": ["a"]}'),
    "evidence": ("queries", '{"id": "ab", "evidence_ids": VALUE}'),
}
TAKEN = {
    "query_id",
    "doc_ids",
    "an id",
    "ids of a turn",
    "evidence of a turn",
    "id",
    "text",
    "n_chars",
    "id of a query",
    "evidence",
}
"""Places where some of the values are right."""


def with_file(files: list[str], role: str, path: Path) -> list[str]:
    trace, _, corpus = files
    return {
        "trace": [str(path), "--corpus", corpus],
        "corpus": [trace, "--corpus", corpus, "--corpus", str(path)],
        "queries": [trace, "--corpus", corpus, "--queries", str(path)],
    }[role]


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_a_field_ends_in_one_line(files: list[str], tmp_path: Path, place: str):
    role, line = PLACES[place]
    refused = []
    for value in VALUES:
        (tmp_path / "odd.jsonl").write_text(line.replace("VALUE", value))
        for options in ([], ["--mode", "online", "--json"], ["--identity", "text"]):
            refused.append(one_line(run(*with_file(files, role, tmp_path / "odd.jsonl"), *options)))
    assert sum(refused) > len(refused) / 2 if place in TAKEN else all(refused)


@pytest.mark.parametrize("role", ["trace", "corpus", "queries"])
def test_files_that_are_none_end_in_one_line(files: list[str], tmp_path: Path, role: str):
    for content in BROKEN.values():
        (tmp_path / "odd.jsonl").write_bytes(content)
        assert one_line(run(*with_file(files, role, tmp_path / "odd.jsonl")))
    packed = gzip.compress(b'{"id": "a", "text": "secret", "doc_ids": ["a"]}\n' * 99)
    for content in (
        packed[:-9],
        packed[:5],
        packed[:30] + b"\xff" * 9 + packed[39:],
        packed[:-6] + bytes(6),
        b"secret",
    ):
        (tmp_path / "odd.jsonl.gz").write_bytes(content)
        assert one_line(run(*with_file(files, role, tmp_path / "odd.jsonl.gz")))
    for path in (tmp_path, tmp_path / "absent", "/dev/zero", "/dev/full", "x" * 5_000, "two\nlines\x1b[31m"):
        assert one_line(run(*with_file(files, role, Path(path))))
