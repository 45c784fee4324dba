"""``contextpilot-rag doctor``, run as a person would."""

import json

import pytest

from tests.conftest import require
from tests.integrations import console

BODY = "You are helpful and brief, whatever they ask. Here is what is known of trees.\n" + "The ash is a tree. " * 30


def messages(time, question="What?"):
    return [{"role": "system", "content": f"Time: {time}\n{BODY}"}, {"role": "user", "content": question}]


def run(*arguments):
    require("typer")
    require("rich")
    return console.run("doctor", *map(str, arguments))


@pytest.fixture
def two(tmp_path):
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, time in zip(paths, ("10:59", "11:02"), strict=True):
        path.write_text(json.dumps(messages(time)))
    return paths


def test_it_says_where_what_it_costs_and_what_to_change(two):
    done = run(*two)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [f"Prompt 1: {two[0]}", f"Prompt 2: {two[1]}"]
    assert "They first differ at message 0, character 7, before every document." in done.stdout
    assert "clock: a time or date changes" in done.stdout
    assert "ash" not in done.stdout


def test_json_holds_everything(two):
    result = json.loads(run(*two, "--json", "--kv-block", "32").stdout)
    assert result["prompts"] == [str(path) for path in two]
    assert (result["kv_block"], result["kinds"], result["fine"]) == (32, ["clock"], False)
    pair = result["pairs"][0]
    assert (pair["message"], pair["offset"], pair["reused_tokens"]) == (0, 7, 0)
    assert pair["precedes_documents"] is True
    assert pair["lost_tokens"] == pair["possible_tokens"] > 100
    assert pair["findings"][0]["kind"] == "clock"
    assert "behind the documents" in pair["findings"][0]["advice"]
    assert "ash" not in json.dumps(result)


def test_texts_are_prompts_too(tmp_path):
    paths = [tmp_path / "one.txt", tmp_path / "two.prompt"]
    for path in paths:
        path.write_text(BODY)
    done = run(*paths)
    assert done.returncode == 0
    assert "Nothing here keeps the prefix cache from working." in done.stdout


def test_tools_of_request_bodies(tmp_path):
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in "ab"]
    body = [{"model": "m", "messages": messages("10:59"), "tools": order} for order in (tools, tools[::-1])]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, body)) + "\n\n")
    assert json.loads(run(tmp_path / "log.jsonl", "--json").stdout)["kinds"] == ["tool_order"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("one.json", json.dumps(messages("10:59")), "at least two"),
        ("bad.json", "{", "is no JSON"),
        ("bad.jsonl", '"a"\n{', "line 2"),
        ("mixed.json", json.dumps(["text", messages("10:59")]), "mixes texts and message lists"),
        ("odd.json", "[1, 2]", "prompts[0]"),
        ("empty.json", "[]", "at least two"),
        ("latin.txt", None, "cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_no_traceback(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe\xfa") if content is None else path.write_text(content)
    done = run(path)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_an_absent_file_is_named(tmp_path):
    done = run(tmp_path / "absent.json", tmp_path / "absent.json")
    assert done.returncode == 2
    assert "absent.json" in done.stderr.replace("\n", "")


def test_help_names_the_forms():
    help_text = run("--help").stdout
    assert "--kv-block" in help_text
    assert "--json" in help_text
