"""Tools: one form for equal sets, and whether it is their order, their keys or the set that differs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.diagnose import diagnose
from contextpilot_core.diagnose.tools import canonical_tools, tool_change, tool_name
from contextpilot_core.errors import RequestTypeError
from tests.core.diagnosed import FIRST, stuffed, tool, tool_lists


def test_s9_tool_order_is_named_and_costs_all_that_follows():
    messages = stuffed(FIRST, "What?")
    a, b = tool("search", query={"type": "string"}), tool("fetch", url={"type": "string"})
    diagnosis = diagnose([{"messages": messages, "tools": [a, b]}, {"messages": messages, "tools": [b, a]}])
    finding = diagnosis.findings[0]
    assert (finding.kind, finding.message) == ("tool_order", None)
    assert finding.lost_tokens > 250
    assert "canonical_tools" in finding.advice


@pytest.mark.parametrize("others", [["search"], ["search", "fetch", "more"], ["search", "other"], []])
def test_s9_another_set_is_not_reported_as_order(others):
    messages = stuffed(FIRST, "What?")
    prompts = [{"messages": messages, "tools": [tool(n) for n in names]} for names in (["fetch", "search"], others)]
    assert [f.kind for f in diagnose(prompts).findings] == ["tool_set"]


def test_s9_keys_in_another_order_are_named():
    one = tool("search", query={"type": "string"})
    two = {"function": dict(reversed(one["function"].items())), "type": "function"}
    prompts = [{"messages": stuffed(FIRST, "What?"), "tools": tools} for tools in ([one], [two])]
    assert diagnose(prompts).kinds == ("tool_keys",)


def test_canonical_tools_are_equal_bytes_and_leave_the_given_alone():
    a, b = tool("search", query={"type": "string"}, k={"type": "integer"}), tool("fetch", url={"type": "string"})
    shuffled = {"function": dict(reversed(a["function"].items())), "type": "function"}
    before = json.dumps([a, b])
    assert json.dumps(canonical_tools([a, b])) == json.dumps(canonical_tools([b, shuffled, b]))
    assert json.dumps([a, b]) == before
    assert [t["function"]["name"] for t in canonical_tools([a, b])] == ["fetch", "search"]
    assert canonical_tools([]) == []


@pytest.mark.parametrize("wrong", [["search"], [{"name": object()}], [{"name": float("nan")}]])
def test_canonical_tools_refuse_what_json_cannot(wrong):
    with pytest.raises(RequestTypeError, match=r"tools\[0\]"):
        canonical_tools(wrong)


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(inner) for inner in value] if isinstance(value, list) else value


@given(tool_lists, st.randoms())
def test_any_order_of_tools_and_keys_is_one_form(tools, random):
    shuffled = [reversed_keys(entry) for entry in tools]
    random.shuffle(shuffled)
    assert json.dumps(canonical_tools(tools)) == json.dumps(canonical_tools(shuffled))
    assert canonical_tools(canonical_tools(tools)) == canonical_tools(tools)


def test_names_in_required_are_sorted_at_any_depth_and_other_lists_stay():
    inner = {"type": "object", "required": ["b", "a"], "enum": ["y", "x"]}
    [found] = canonical_tools([{"name": "n", "parameters": {"required": ("z", "c"), "items": [inner]}}])
    assert found["parameters"]["required"] == ["c", "z"]
    assert found["parameters"]["items"] == [{"type": "object", "required": ["a", "b"], "enum": ["y", "x"]}]
    [found] = canonical_tools([{"properties": {"required": {"type": "string"}}, "required": ["b", 1]}])
    assert found == {"properties": {"required": {"type": "string"}}, "required": ["b", 1]}  # no list of names


def test_a_tool_that_contains_itself_is_refused():
    endless: dict[str, object] = {"name": "n"}
    endless["self"] = endless
    with pytest.raises(RequestTypeError, match=r"tools\[1\] holds a value that JSON cannot"):
        canonical_tools([tool("search"), endless])
    with pytest.raises(RequestTypeError, match=r"tools\[0\]"):
        canonical_tools([{1: "one", "1": "two"}])  # keys that cannot be put into one order


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        ({"type": "function", "function": {"name": "chat"}}, "chat"),
        ({"type": "function", "name": "responses"}, "responses"),
        ({"function": {"name": "inner"}, "name": "outer"}, "inner"),
        ({"function": {}, "name": "outer"}, ""),
        ({"name": 7}, ""),
        ({}, ""),
    ],
)
def test_the_name_of_a_definition(definition: dict[str, object], name: str):
    assert tool_name(definition) == name


A, B = {"name": "a", "x": {"p": 1, "q": 2}}, {"name": "b"}
A_OTHERWISE = {"x": {"q": 2, "p": 1}, "name": "a"}


@pytest.mark.parametrize(
    ("one", "other", "change"),
    [
        ([], [], None),
        ([A, B], [A, B], None),
        ([A, B], [B, A], "tool_order"),
        ([A, B], [B, A_OTHERWISE], "tool_order"),
        ([A, B], [A_OTHERWISE, B], "tool_keys"),
        ([A, B], [A], "tool_set"),
        ([A, B], [A, {"name": "c"}], "tool_set"),
        ([A, B], [A, B, B], "tool_set"),
        ([A, A, B], [A, B, B], "tool_order"),
    ],
)
def test_how_two_lists_differ(one: list[dict[str, object]], other: list[dict[str, object]], change: str | None):
    assert tool_change(one, other) == tool_change(other, one) == change


@given(tool_lists, st.randoms())
def test_a_shuffled_list_differs_in_order_or_keys_only(tools, random):
    shuffled = [reversed_keys(entry) for entry in tools]
    assert tool_change(tools, shuffled) in (None, "tool_keys")
    random.shuffle(shuffled)
    assert tool_change(tools, shuffled) in (None, "tool_keys", "tool_order")
    assert tool_change(tools, [*tools, {"name": "one more"}]) == "tool_set"
