"""``contextpilot-rag doctor``, run as a person would."""

import json

import pytest

from tests.conftest import require
from tests.integrations import command_line, console
from tests.integrations.hostile_json import BROKEN, VALUES, one_line

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


CALL = '"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}'
PLACES = {
    "a file": "VALUE",
    "a prompt": '["text", VALUE]',
    "messages": '{"messages": VALUE}',
    "prompt": '{"prompt": VALUE}',
    "tools": '{"messages": [{"role": "user", "content": "secret"}], "tools": VALUE}',
    "a tool": '{"messages": [{"role": "user", "content": "secret"}], "tools": [VALUE]}',
    "a function": '{"messages": [{"role": "user", "content": "secret"}], "tools": [{"function": VALUE}]}',
    "a name": '{"messages": [{"role": "user", "content": "secret"}], "tools": [{"function": {"name": VALUE}}]}',
    "required": '{"messages": [{"role": "user", "content": "secret"}], "tools": [{"required": VALUE}]}',
    "a message": '{"messages": [VALUE]}',
    "role": '[{"role": VALUE, "content": "secret"}]',
    "content": '[{"role": "user", "content": VALUE}]',
    "a part": '[{"role": "user", "content": [VALUE]}]',
    "text of a part": '[{"role": "user", "content": [{"type": "text", "text": VALUE}]}]',
    "tool_calls": '[{"role": "assistant", "content": "secret", "tool_calls": VALUE}]',
    "a call": '[{"role": "assistant", "content": "secret", "tool_calls": [VALUE]}]',
    "a called function": '[{"role": "assistant", "content": "secret", "tool_calls": [{"function": VALUE}]}]',
    "name": '[{"role": "user", "content": "secret", "name": VALUE}]',
    "refusal": '[{"role": "assistant", "content": "secret", "refusal": VALUE}]',
}
GOOD = '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "tools": []}'


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_a_field_ends_in_one_line(tmp_path, place):
    require("typer")
    names = [str(tmp_path / name) for name in ("good.json", "odd.json", "same.json", "log.jsonl")]
    (tmp_path / "good.json").write_text(GOOD)
    for value in VALUES:
        line = PLACES[place].replace("VALUE", value)
        for name, text in (
            ("odd.json", line),
            ("same.json", line.replace("secret", "secret 2")),
            ("log.jsonl", f"{line}\n{GOOD}"),
        ):
            (tmp_path / name).write_text(text)
        for files in ((names[0], names[1]), (names[1], names[2], "--json"), (names[3],)):
            done = command_line.run("doctor", *files)
            one_line(done)
            assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("field", ["content", "tool_calls", "tools"])
@pytest.mark.parametrize("value", ["5", "true", "1.5", "NaN", '{"a": 1}'])
def test_what_no_request_can_hold_is_named_with_its_place(tmp_path, field, value):
    message = '{"role": "user", "content": "secret"}' if field == "tools" else f'{{"role": "user", "{field}": {value}}}'
    tools = value if field == "tools" else "null"
    (tmp_path / "log.jsonl").write_text(f'{GOOD}\n{{"messages": [{message}], "tools": {tools}}}')
    done = command_line.run("doctor", str(tmp_path / "log.jsonl"))
    assert one_line(done) and f"log.jsonl, line 2: '{field}' is a " in done.stderr


@pytest.mark.parametrize("name", ["odd.json", "odd.jsonl"])
def test_files_that_are_none_end_in_one_line(tmp_path, name):
    for content in BROKEN.values():
        (tmp_path / name).write_bytes(content)
        done = command_line.run("doctor", str(tmp_path / name), str(tmp_path / name))
        assert one_line(done) and "secret" not in done.stderr
    for path in (str(tmp_path), "/dev/zero", "/dev/full", "x" * 5_000, "two\nlines\x1b[31m"):
        assert one_line(command_line.run("doctor", path, path))
