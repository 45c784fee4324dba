"""Prompts at the door: records, parts, units, and where two prompts first differ."""

import os.path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.diagnose import diagnose
from contextpilot_core.diagnose.records import (
    SHORTEST_SHARED,
    TOOLS,
    Part,
    PromptRecord,
    as_record,
    common_length,
    common_parts,
    dump,
    head_text,
    parts_of,
    same_kind,
    units_of,
)
from contextpilot_core.errors import RequestError, RequestTypeError
from tests.core.diagnosed import only

USER = {"role": "user", "content": "hello"}


def test_whatever_the_caller_has_is_one_record():
    record = PromptRecord(prompt="text", question="q")
    assert as_record(record, 0) is record
    assert as_record("text", 0) == PromptRecord(prompt="text")
    assert as_record([USER], 0) == PromptRecord(prompt=[USER])
    assert as_record({"messages": [USER], "tools": None, "model": "m"}, 0) == PromptRecord(prompt=[USER])
    assert as_record({"prompt": "text", "tools": [{"name": "n"}]}, 0) == PromptRecord(
        prompt="text", tools=[{"name": "n"}]
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (7, r"prompts\[3\] is a int; give a text"),
        (b"bytes", r"prompts\[3\] is a bytes"),
        ({"input": "x"}, r"prompts\[3\] is a mapping without 'messages' or 'prompt'"),
        ({"messages": 7}, r"prompts\[3\] is a int"),
        ([USER, "x"], r"prompts\[3\]\[1\] is a str; every message must be a mapping"),
        ([{"content": "x"}], r"prompts\[3\]\[0\] is a dict"),
        ([{"role": None}], r"prompts\[3\]\[0\]"),
        ({"prompt": "x", "tools": "search"}, r"the tools of prompts\[3\] must be a list of mappings"),
        ({"prompt": "x", "tools": {"name": "n"}}, r"the tools of prompts\[3\]"),
        ({"prompt": "x", "tools": 5}, r"the tools of prompts\[3\]"),
        ([{"role": "user", "content": 5}], r"the content of prompts\[3\]\[0\] is a int; give a text, a list of parts"),
        ([USER, {"role": "a", "tool_calls": 5}], r"the tool_calls of prompts\[3\]\[1\] is a int; give a list, or None"),
        ([{"role": "a", "tool_calls": "f()"}], r"the tool_calls of prompts\[3\]\[0\] is a str"),
        (PromptRecord(prompt="x", question=5), r"the question of prompts\[3\] must be a str"),  # type: ignore[arg-type]
        (PromptRecord(prompt="x", tools=["search"]), r"the tools of prompts\[3\]"),  # type: ignore[list-item]
    ],
)
def test_anything_else_is_refused_with_the_way_out(wrong: Any, words: str):
    with pytest.raises(RequestTypeError, match=words):
        as_record(wrong, 3)


def test_texts_and_messages_are_two_kinds():
    text, messages = PromptRecord(prompt="text"), PromptRecord(prompt=[USER])
    same_kind([text, text])
    same_kind([messages, messages])
    with pytest.raises(RequestError, match="mixes texts and message lists"):
        same_kind([text, messages])


def test_parts_are_the_tools_then_the_messages_as_templates_show_them():
    call = {"id": "left out", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    prompt = [
        {"role": "system", "content": None, "reasoning_content": "left out"},
        {"role": "user", "content": ["one", {"type": "text", "text": "two"}, {"type": "image", "data": b"x"}]},
        {"role": "assistant", "content": "calling", "tool_calls": [call, "odd"], "refusal": "no", "name": ""},
        {"role": "tool", "content": "found", "tool_call_id": "left out", "name": "search"},
    ]
    tools = [{"name": "ä"}, {"b": 1, "a": 2}]
    assert parts_of(PromptRecord(prompt=prompt, tools=tools)) == (
        Part(TOOLS, '{"name": "ä"}\n{"b": 1, "a": 2}'),
        Part("system", ""),
        Part("user", 'one\ntwo\n{"type": "image", "data": "bytes"}'),
        Part("assistant", 'calling\n{"name": "search", "arguments": "{}"}\n"odd"\nrefusal: no'),
        Part("tool", "found\nname: search"),
    )
    assert parts_of(PromptRecord(prompt="text")) == (Part(TOOLS, ""), Part("", "text"))
    assert dump({"z": {1}, "a": "\ud800"}) == '{"z": "set", "a": "\ud800"}'


def test_a_part_is_counted_with_its_role_on_a_line():
    assert Part("user", "hello").shown == "user\nhello\n"
    assert Part("user", "").shown == "user\n\n"
    assert Part("", "hello").shown == "hello"
    assert Part(TOOLS, "").shown == ""
    assert Part(TOOLS, "{}").shown == "tools\n{}\n"


def texts_of(text: str) -> list[str]:
    return [unit.text for unit in units_of([Part(TOOLS, "Tools are no text."), Part("user", text)])]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("A line of some length.\n\n  Another line\t\n", ["A line of some length.", "Another line"]),
        (
            "The first sentence is here. The second one is there, too.",
            ["The first sentence is here.", "The second one is there, too."],
        ),
        ("Yes. No. Is it so? It is.", ["Yes. No. Is it so? It is."]),  # short ones stay together
        ("Yes. And then a longer sentence. End", ["Yes. And then a longer sentence.", "End"]),
        ("白蜡树是一种树木它生长在温带的森林里面。它很高。", ["白蜡树是一种树木它生长在温带的森林里面。", "它很高。"]),
        (
            "[Document(page_content='x'), Document(page_content='y')]",
            ["[", "Document(page_content='x')", "Document(page_content='y')"],
        ),
        (" , \n\n", []),
        ("", []),
    ],
)
def test_units_are_lines_and_sentences(text: str, units: list[str]):
    assert texts_of(text) == units


parts = st.lists(
    st.builds(
        Part,
        st.sampled_from([TOOLS, "user", "system", ""]),
        st.text("aB.,!? \n)]", max_size=60) | st.text(max_size=20),
    ),
    max_size=4,
)


@given(parts)
def test_units_stand_where_they_say_and_only_white_space_and_ends_are_left_out(given_parts: list[Part]):
    units = units_of(given_parts)
    left = [part.text for part in given_parts]
    for unit in reversed(units):
        part = given_parts[unit.part]
        assert part.role != TOOLS
        assert unit.text and part.text[unit.start : unit.end] == unit.text
        assert unit.long == (len(unit.text) >= SHORTEST_SHARED)
        left[unit.part] = left[unit.part][: unit.start] + left[unit.part][unit.end :]
    places = [(unit.part, unit.start, unit.end) for unit in units]
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in zip(places, places[1:], strict=False))
    for part, rest in zip(given_parts, left, strict=True):
        assert part.role == TOOLS or all(character.isspace() or character in ",]" for character in rest)


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_common_length_of_two_texts(one: str, other: str):
    assert common_length(one, other) == len(os.path.commonprefix([one, other]))


@given(parts, parts, parts)
def test_up_to_where_prompts_first_differ_they_are_one_text(head: list[Part], one: list[Part], two: list[Part]):
    a, b = [*head, *one], [*head, *two]
    number, offset = common_parts(a, b)
    assert (number, offset) == common_parts(b, a)
    assert number >= len(head)
    assert head_text(a, (number, offset)) == head_text(b, (number, offset))
    same = [x.role == y.role and x.text == y.text for x, y in zip(a, b, strict=False)]
    assert number == (same.index(False) if False in same else len(same))
    if number < min(len(a), len(b)):
        alike = a[number].role == b[number].role
        assert offset == (len(os.path.commonprefix([a[number].text, b[number].text])) if alike else 0)


def test_the_head_is_counted_as_it_is_shown():
    given_parts = [Part(TOOLS, "{}"), Part("user", "hello"), Part("assistant", "hi")]
    assert head_text(given_parts, (0, 0)) == ""
    assert head_text(given_parts, (1, 0)) == "tools\n{}\n"
    assert head_text(given_parts, (1, 2)) == "tools\n{}\nuser\nhe"
    assert head_text(given_parts, (3, 0)) == "tools\n{}\nuser\nhello\nassistant\nhi\n"
    assert head_text([Part(TOOLS, ""), Part("", "text")], (1, 3)) == "tex"


@pytest.mark.parametrize("body", ["The ash is a tree. " * 40, "白蜡树是一种树。" * 60, "Is it? No! " * 60])
def test_short_sentences_count(body):
    pair = only(diagnose([f"Time: 10:59\n{body}", f"Time: 11:02\n{body}"], kv_block=1))
    assert pair.lost_tokens > 0.9 * pair.prompt_tokens
