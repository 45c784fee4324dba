"""Prompts in files: what is one prompt, what are several, and what is none."""

import json

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_integrations.doctor import read_prompts


def messages(time):
    return [{"role": "system", "content": f"Time: {time}"}, {"role": "user", "content": "What?"}]


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("messages.json", messages("10:59"), 1),
        ("body.json", {"messages": messages("10:59"), "tools": []}, 1),
        ("text.json", "a text", 1),
        ("lists.json", [messages("10:59"), messages("11:02")], 2),
        ("bodies.json", [{"prompt": "a"}, {"prompt": "b"}, "c"], 3),
    ],
)
def test_forms_of_json_files(tmp_path, name, value, count):
    (tmp_path / name).write_text(json.dumps(value))
    prompts = read_prompts(tmp_path / name)
    assert len(prompts) == count
    assert prompts == (value if count > 1 else [value])


def test_lines_that_only_look_separate_stay_together(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps("one \u2028 line", ensure_ascii=False) + "\n" + json.dumps("two"))
    assert read_prompts(tmp_path / "a.jsonl") == ["one \u2028 line", "two"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt"])
def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path, name):
    (tmp_path / name).write_text("text" if name == "a.txt" else '"text"', encoding="utf-8-sig")
    assert read_prompts(tmp_path / name) == ["text"]


def test_absent_files_are_refused(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        read_prompts(tmp_path / "no.txt")


def test_lines_are_prompts_of_any_form_and_empty_ones_none(tmp_path):
    lines = [json.dumps("one"), "", json.dumps(messages("10:59")), "  ", json.dumps(["two", "three"])]
    (tmp_path / "LOG.JSONL").write_text("\n".join(lines) + "\n")
    assert read_prompts(tmp_path / "LOG.JSONL") == ["one", messages("10:59"), "two", "three"]


@pytest.mark.parametrize("name", ["prompt.txt", "prompt.md", "prompt"])
def test_any_other_file_is_one_prompt_as_it_stands(tmp_path, name):
    (tmp_path / name).write_text('["a", "b"]\n')
    assert read_prompts(str(tmp_path / name)) == ['["a", "b"]\n']


def test_a_list_is_one_prompt_only_where_all_entries_are_messages(tmp_path):
    mixed = [*messages("10:59"), "a text"]
    (tmp_path / "mixed.json").write_text(json.dumps(mixed))
    assert read_prompts(tmp_path / "mixed.json") == mixed
    (tmp_path / "none.json").write_text("[]")
    assert read_prompts(tmp_path / "none.json") == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bad.json", b"{", "bad.json: is no JSON"),
        pytest.param("bad.json", b"[" * 100_000, "bad.json: is no JSON .*nested too deeply", id="nested too deeply"),
        ("bad.jsonl", b'"secret"\n\n{secret', "bad.jsonl, line 3: is no JSON"),
        ("latin.txt", b"secr\xe9t", "latin.txt: cannot be read .it is not in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_without_its_text(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=said) as caught:
        read_prompts(tmp_path / name)
    assert "secr" not in str(caught.value)
