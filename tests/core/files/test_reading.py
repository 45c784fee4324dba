"""The one door for files: what it reads, and what it says of what cannot be read."""

import gzip
import json
import os
import traceback

import pytest

from contextpilot_core.errors import ConfigError, RequestError
from contextpilot_core.files import parse, read_json_lines, read_text

SECRET = "the secret of the file"


def refused(read, *arguments):
    with pytest.raises(ConfigError) as caught:
        read(*arguments, fix="give another", error=ConfigError)
    told = str(caught.value)
    assert told.endswith("; give another") and "\n" not in told
    chain = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told and SECRET not in chain
    assert "During handling" not in chain and "direct cause" not in chain
    return told


def lines(path, **options):
    return list(read_json_lines(path, **options))


def test_texts_are_read_with_a_byte_order_mark_or_without_packed_or_not(tmp_path):
    for name, data in (
        ("a.txt", b"\xc3\xa9\r\n"),
        ("b.txt", b"\xef\xbb\xbf\xc3\xa9\n"),
        ("c.txt.gz", gzip.compress(b"\xef\xbb\xbf\xc3\xa9\n")),
    ):
        (tmp_path / name).write_bytes(data)
        assert read_text(tmp_path / name, fix="", error=ConfigError) == "é\n"
    (tmp_path / "d.txt").write_bytes(b"a\xffb")
    assert read_text(str(tmp_path / "d.txt"), fix="", error=ConfigError, errors="replace") == "a\ufffdb"


def test_lines_are_values_with_their_places(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\n1\n  \n{"a": "\u2028"}\n')
    assert lines(path, fix="", error=ConfigError) == [(f"{path}, line 2", 1), (f"{path}, line 4", {"a": "\u2028"})]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.jsonl", f'"{SECRET}"\n"\xff"'.encode("latin-1"), "(it is not in UTF-8)"),
        ("a.jsonl", json.dumps(SECRET).encode("utf-16"), "(it is not in UTF-8)"),
        ("a.jsonl.gz", SECRET.encode(), "(it is no whole gzip file)"),
        ("a.jsonl.gz", gzip.compress(f'"{SECRET}"'.encode())[:-5], "(it is no whole gzip file)"),
        ("a.jsonl.gz", gzip.compress(f'"{SECRET}"'.encode())[:-8] + bytes(8), "(it is no whole gzip file)"),
    ],
    ids=["no UTF-8", "UTF-16", "not packed", "cut short", "a wrong checksum"],
)
def test_what_is_damaged_is_named_without_a_word_of_it(tmp_path, name, data, why):
    path = tmp_path / name
    path.write_bytes(data)
    for read in (read_text, lines):
        told = refused(read, path)
        assert told.startswith(str(path)) and "cannot be read" in told and why in told


def test_what_is_no_file_is_named(tmp_path):
    paths = {
        tmp_path / "absent": "there is no such file",
        tmp_path: "Is a directory",
        tmp_path / ("x" * 300): "File name too long",
        "/dev/zero": "it is a device",
        "/dev/full": "it is a device",
        "nul\0byte": "ValueError",
        "": "there is no such file",
    }
    for path, why in paths.items():
        for read in (read_text, lines):
            assert why in refused(read, path)


def test_a_pipe_is_read(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"[1]\n[2]\n")
    os.close(writing)
    assert [value for _, value in lines(f"/dev/fd/{reading}", fix="", error=ConfigError)] == [[1], [2]]
    os.close(reading)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SECRET, "(Expecting value, at character 1)"),
        (f'{{"{SECRET}"', "at character"),
        (f'"{SECRET}', "at character"),
        (f'"{SECRET} \\x"', "at character"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("[" * 101 + "]" * 101, "nested too deeply"),
        ('{"a":[' * 60 + "1" + "]}" * 60, "nested too deeply"),
        ("9" * 5_000, "too many digits"),
        ("[-" + "9" * 5_000 + "]", "too many digits"),
        ("", "Expecting value"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_json_is_refused_with_its_place(text, why):
    told = refused(parse, text, "FILE, line 3")
    assert told.startswith("FILE, line 3: is no JSON") and why in told


def test_depth_is_that_of_the_value_and_not_of_what_its_texts_hold():
    assert parse("[" * 100 + "]" * 100, "FILE", fix="", error=RequestError) != []
    wide, text = [[], {}] * 5_000, "[{" * 5_000
    assert parse(json.dumps(wide), "FILE", fix="", error=RequestError) == wide
    assert parse(json.dumps(text), "FILE", fix="", error=RequestError) == text
