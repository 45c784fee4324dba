"""The file of scores."""

import json
import os
import stat
from pathlib import Path

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.gate.records import Record, ScoreFile

HEAD = '{"settings": {}}\n'


def recorded(group='"g"', scores="{}"):
    return f'{HEAD}{{"key": "k", "group": {group}, "scores": {scores}}}'


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]\n", "null\n", "no JSON\n", "[" * 100_000 + "\n", "9" * 5_000 + "\n", '{"settings": "\udcff"}\n'),
        *('{"settings": null}\n', '{"settings": 5}\n', '{"settings": []}\n', '{"settings": {}}\n{"key": 1}\n'),
        *(HEAD + line for line in ("5", "null", "[]", "{}", '{"key": 1, "group": "g", "scores": {}}')),
        *(recorded(group=value) for value in ("5", "null", "[]", "{}")),
        *(recorded(scores=value) for value in ("5", "null", '"x"', "[1]", '{"a": 5}')),
        *(
            recorded(scores=f'{{"a": {{"f1": {value}}}}}')
            for value in ('"0.5"', "null", "true", "NaN", "Infinity", "-1e400", "9" * 400, "[]", "{}", "[" * 500)
        ),
    ],
    ids=lambda text: text[:20],
)
def test_another_file_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "s.jsonl"
    content = (text if text.endswith("\n") or not text else text + "\n").encode("utf-8", "surrogateescape")
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no file of scores|is no JSON that can be read|cannot be read"):
        ScoreFile(path, {})
    assert path.read_bytes() == content


def test_what_never_ends_or_gives_nothing_back_is_no_file_of_scores(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/full", "/dev/zero", "/dev/null", tmp_path / "pipe"):
        with pytest.raises(ConfigError, match=f"{path} cannot be read and written"):
            ScoreFile(Path(path), {})


def test_a_file_that_is_full_half_way_is_named(tmp_path):
    scores = ScoreFile(tmp_path / "s.jsonl", {})
    (tmp_path / "s.jsonl").unlink()
    (tmp_path / "s.jsonl").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match="cannot be read and written .*No space left"):
        scores.add(record(0))
    assert scores.records == {}


def test_scores_are_for_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "s.jsonl"
    ScoreFile(path, {}).add(record(0))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]


def test_other_settings_are_named(tmp_path):
    path = tmp_path / "s.jsonl"
    ScoreFile(path, {"model": "a", "metric": "f1"}).add(record(0))
    before = path.read_text()
    with pytest.raises(ConfigError, match=r"other settings \(model\)"):
        ScoreFile(path, {"model": "b", "metric": "f1"})
    assert path.read_text() == before


def test_a_file_without_a_record_is_begun_again(tmp_path):
    """A first run may have had a wrong model, and ended with the first question."""
    path = tmp_path / "s.jsonl"
    ScoreFile(path, {"model": "a", "metric": "f1"})
    ScoreFile(path, {"model": "b"}).add(record(0))
    assert list(ScoreFile(path, {"model": "b"}).records) == ["k0"]


def record(number, score=1 / 3):
    return Record(key=f"k{number}", group="order", scores={"original": {"f1": score}})


def test_a_record_is_there_at_once_and_for_the_next_run(tmp_path):
    path = tmp_path / "deep" / "er" / "s.jsonl"
    scores = ScoreFile(path, {"model": "m"})
    scores.add(record(0))
    rounded = record(0, 0.33333)
    assert scores.records == {"k0": rounded}
    assert ScoreFile(path, {"model": "m"}).records == {"k0": rounded}
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"settings": {"model": "m"}},
        {"key": "k0", "group": "order", "scores": {"original": {"f1": 0.33333}}},
    ]


def test_only_the_line_that_broke_off_is_lost(tmp_path):
    path = tmp_path / "s.jsonl"
    scores = ScoreFile(path, {})
    for number in range(3):
        scores.add(record(number))
    path.write_text(path.read_text()[:-1])
    again = ScoreFile(path, {})
    assert list(again.records) == ["k0", "k1"]
    again.add(record(3))
    assert list(ScoreFile(path, {}).records) == ["k0", "k1", "k3"]


def test_settings_that_are_absent_or_new_are_named_too(tmp_path):
    path = tmp_path / "s.jsonl"
    ScoreFile(path, {"model": "a", "metric": "f1"}).add(record(0))
    with pytest.raises(ConfigError, match=r"other settings \(answer_tokens, metric\)"):
        ScoreFile(path, {"model": "a", "answer_tokens": 5})


def test_a_path_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "s.jsonl"):
        with pytest.raises(ConfigError, match=f"{path} cannot be read and written"):
            ScoreFile(path, {})
