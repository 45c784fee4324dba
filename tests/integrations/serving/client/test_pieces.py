"""What the pieces of an answer add up to, as the openai library reads them from the wire, in many servers' shapes."""

import json

import pytest

from contextpilot_integrations.serving.client.pieces import AnswerPieces
from tests.conftest import require

require("openai")

from openai.types.chat import ChatCompletionChunk  # noqa: E402


def added_up(*deltas):
    """The pieces of these deltas, and what each of them gave the reader."""
    pieces, said = AnswerPieces(), []
    for delta in deltas:
        choices = [{"index": 0, "finish_reason": None, "delta": delta}]
        chunk = ChatCompletionChunk.construct(id="c", created=1, model="m", object="chunk", choices=choices)
        read = chunk.choices[0].delta
        said.append(pieces.add(read.content, read))
    return pieces, said


def calls(*pieces):
    """Return (id, name, arguments) of the calls that the pieces make."""
    added, _ = added_up(*[{"tool_calls": [each]} for each in pieces])
    return [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in added.calls.all()]


def piece(index=None, id=None, name=None, arguments=None):
    function = {"name": name, "arguments": arguments}
    given = {"index": index, "id": id, "function": {key: value for key, value in function.items() if value is not None}}
    return {key: value for key, value in given.items() if value is not None}


READ, WRITE = ("a", "read", '{"p":"a"}'), ("b", "write", '{"p":"b"}')


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([piece(0, *READ), piece(0, *WRITE)], [READ, WRITE]),
        ([piece(None, *READ), piece(None, *WRITE)], [READ, WRITE]),
        ([piece(0, *READ), piece(None, *WRITE)], [READ, WRITE]),
        ([piece(None, *READ), piece(0, *WRITE)], [READ, WRITE]),
        ([piece(None, *READ), piece(1, *WRITE)], [READ, WRITE]),
        ([piece(1, *WRITE), piece(0, *READ)], [READ, WRITE]),
        (
            [piece(0, "same", "read", "{}"), piece(1, "same", "write", "{}")],
            [("same", "read", "{}"), ("same", "write", "{}")],
        ),
    ],
    ids=["one index", "no index", "then none", "none at first", "none, and the next", "backwards", "one id for all"],
)
def test_calls_that_come_whole(pieces, expected):
    assert calls(*pieces) == expected


@pytest.mark.parametrize(("index", "later_index"), [(0, 0), (0, None), (None, None), (None, 0), (3, 3)])
@pytest.mark.parametrize("repeats", [(), ("id",), ("name",), ("id", "name")])
def test_calls_that_come_in_pieces(index, later_index, repeats):
    def later(id, name, arguments):
        again = {"id": id, "name": name}
        return piece(later_index, arguments=arguments, **{key: again[key] for key in repeats})

    def whole(id, name, first, second, third):
        return [piece(index, id, name, first), later(id, name, second), later(id, name, third), later(id, name, "")]

    pieces = [*whole("a", "read", "", '{"p"', ':"a"}'), *whole("b", "write", '{"p"', ":", '"b"}')]
    assert calls(*pieces) == [READ, WRITE]


def test_calls_of_one_index_that_come_interleaved_are_told_by_their_ids():
    pieces = [
        piece(0, "a", "read", "{"),
        piece(0, "b", "write", "{"),
        piece(0, "a", arguments='"p":"a"'),
        piece(0, "b", arguments='"p":"b"'),
        piece(0, "a", arguments="}"),
        piece(0, arguments=""),
        piece(0, "b", arguments="}"),
    ]
    assert calls(*pieces) == [READ, WRITE]


def test_a_piece_belongs_to_the_call_that_has_its_index_rather_than_to_one_without():
    pieces = [piece(0, "a", "read", '{"p"'), piece(None, *WRITE), piece(0, arguments=':"a"}')]
    assert calls(*pieces) == [READ, WRITE]


@pytest.mark.parametrize("index", [0, None])
def test_calls_without_ids_are_told_by_their_names_and_ends(index):
    whole = [piece(index, None, "read", '{"p":"a"}'), piece(index, None, "write", '{"p":"b"}')]
    assert calls(*whole) == [("", *READ[1:]), ("", *WRITE[1:])]
    same = [piece(index, None, "read", '{"p":"a"}'), piece(index, None, "read", '{"p":"b"}')]
    assert calls(*same) == [("", "read", '{"p":"a"}'), ("", "read", '{"p":"b"}')]


def test_a_name_in_pieces_is_joined_and_an_id_may_come_late():
    assert calls(piece(0, None, "re"), piece(0, "a", "ad"), piece(0, None, None, '{"p":"a"}')) == [READ]


@pytest.mark.parametrize("index", [0, None])
def test_arguments_under_another_id_with_every_piece_go_on(index):
    """Some servers make up an id for each piece of a call."""
    pieces = [piece(index, "a", "read", ""), piece(index, "x", None, '{"p":'), piece(index, "y", None, '"a"}')]
    assert calls(*pieces, piece(index, "z", None, ""), piece(index, *WRITE)) == [READ, WRITE]


def test_arguments_may_be_an_object():
    assert calls(piece(0, "a", "read", {"p": "ä"})) == [("a", "read", '{"p": "ä"}')]


def test_a_call_without_a_function_breaks_nothing():
    assert calls({"index": 0, "id": "a"}, {"index": 0, "function": {"name": "read", "arguments": '{"p":"a"}'}}) == [
        READ
    ]


# --- text and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Yes.", "Yes."),
        (None, ""),
        ([{"type": "text", "text": "Y"}, {"type": "text", "text": "es."}], "Yes."),
        (["Y", {"text": "es."}], "Yes."),
        ([{"type": "output_text", "text": "Yes."}], "Yes."),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}],
            "Yes.",
        ),
        ([{"type": "reasoning", "text": "Hm."}], ""),
        ([{"type": "refusal", "refusal": "No."}], "No."),
        ([{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": None}, 7, None], ""),
        ([], ""),
        (7, ""),
    ],
)
def test_a_content_is_a_text_or_parts_of_which_the_texts_count(content, text):
    pieces, said = added_up({"content": content})
    assert (pieces.text, said, pieces.message["content"]) == (text, [text], text)
    assert pieces.has_begun is bool(text)


def test_a_refusal_is_what_was_said_and_is_named():
    pieces, said = added_up({"refusal": "I "}, {"content": None, "refusal": "can't."}, {})
    assert said == ["I ", "can't.", ""]
    assert pieces.message == {"role": "assistant", "content": "I can't.", "refusal": "I can't."}
    assert added_up({"content": "Yes."})[0].message == {"role": "assistant", "content": "Yes."}


def test_a_piece_without_a_delta_says_nothing():
    pieces = AnswerPieces()
    assert (pieces.add(None), pieces.add(None, None), pieces.has_begun) == ("", "", False)


# --- thoughts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking", "reasoning_text", "thought"])
def test_thoughts_stay_under_their_servers_name_and_are_no_answer(name):
    pieces, said = added_up({name: "First "}, {name: "search."}, {name: None}, {name: "", "content": "Yes."})
    assert said == ["", "", "", "Yes."]
    assert pieces.message == {"role": "assistant", "content": "Yes.", name: "First search."}
    assert added_up({name: "Hm."})[0].has_begun


def test_thoughts_under_two_names_are_both_kept():
    pieces, _ = added_up({"reasoning": "a", "reasoning_content": "a"}, {"reasoning": "b", "reasoning_content": "b"})
    assert (pieces.message["reasoning"], pieces.message["reasoning_content"]) == ("ab", "ab")


def test_thoughts_in_parts_grow_by_their_index():
    def part(index, text, **more):
        return {"type": "reasoning.text", "index": index, "text": text, **more}

    deltas = [{"reasoning_details": [each]} for each in (part(0, "a"), part(0, "b", signature=None), part(1, "c"))]
    signed = {
        "reasoning_details": [part(1, "d", signature="s"), {"type": "reasoning.encrypted", "index": 1, "data": "x"}]
    }
    pieces, _ = added_up(*deltas, signed, {"reasoning_details": []})
    assert pieces.message["reasoning_details"] == [
        part(0, "ab"),
        part(1, "cd", signature="s"),
        {"type": "reasoning.encrypted", "index": 1, "data": "x"},
    ]
    assert pieces.has_begun


def test_parts_without_an_index_are_kept_as_they_came():
    parts = [{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b"}, "c"]
    pieces, _ = added_up(*[{"thinking_blocks": [part]} for part in parts])
    assert pieces.message["thinking_blocks"] == parts


def test_a_message_is_json_and_nobody_elses():
    pieces, _ = added_up({"reasoning_details": [{"index": 0, "text": "a"}], "tool_calls": [piece(0, *READ)]})
    message = pieces.message
    assert json.loads(json.dumps(message)) == message
    message["tool_calls"][0]["id"] = message["reasoning_details"][0]["text"] = "changed"
    assert pieces.message["tool_calls"][0]["id"] == "a"
    assert pieces.message["reasoning_details"] == [{"index": 0, "text": "a"}]
