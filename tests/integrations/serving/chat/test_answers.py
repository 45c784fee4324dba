"""Which answers a conversation keeps, and how many it can ask for."""

import pytest

from contextpilot_core import RequestError
from contextpilot_core.errors import RequestTypeError
from contextpilot_integrations.serving.chat import check_options, room_for, says_something


@pytest.mark.parametrize(
    "content",
    [
        "Yes.",
        " 0 ",
        ["Yes."],
        [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}],
        [{"type": "text", "text": ""}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}],
        ({"text": "Yes."},),
        [{"type": "refusal", "refusal": "No."}],
    ],
)
def test_text_and_pictures_are_kept(content):
    assert says_something(content)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        " \n\t",
        [],
        [""],
        [{"type": "text", "text": " "}, "\n"],
        [{"type": "text", "text": None}],
        [{"type": "thinking", "thinking": "Hm."}],
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, {"type": "text", "text": ""}],
        [{"type": "redacted_thinking", "data": "x"}],
        [{"type": "refusal", "refusal": ""}],
        7,
    ],
)
def test_nothing_white_space_and_thoughts_are_not(content):
    assert not says_something(content)


@pytest.mark.parametrize("n", [None, 1, 1.0, True, object()])
def test_one_answer_may_be_asked_for(n):
    check_options({"n": n})  # an object is a client library's word for "left out"
    check_options({"n": n, "extra_body": {"n": n}})
    check_options({"extra_body": None})


@pytest.mark.parametrize("n", [2, 128, 0, -1, 2.5, "2"])
@pytest.mark.parametrize("place", [lambda n: {"n": n}, lambda n: {"n": 1, "extra_body": {"n": n}}])
def test_another_number_of_answers_is_refused_with_what_to_do(n, place):
    with pytest.raises(RequestError, match=f"n={n!r} .* leave n out, and ask once for each answer"):
        check_options(place(n))


@pytest.mark.parametrize(
    ("options", "room"),
    [
        ({}, 100),
        ({"max_tokens": 30}, 70),
        ({"max_completion_tokens": 10, "max_tokens": 30}, 90),
        ({"max_completion_tokens": None, "max_tokens": 30}, 70),
        ({"max_tokens": 99}, 1),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": 10**400}, 100),
        ({"max_tokens": -1}, 100),
        ({"max_tokens": "30"}, 100),
        ({"max_tokens": float("nan")}, 100),
    ],
)
def test_the_room_of_a_prompt_is_what_its_answer_leaves(options, room):
    assert room_for(100, options) == room
    assert room_for(None, options) is None


@pytest.mark.parametrize("name", ["messages", "prompt", "model", "stream"])
@pytest.mark.parametrize("value", [None, [], "x", True, [{"role": "user", "content": "other"}]], ids=str)
def test_an_extra_body_brings_nothing_that_is_planned_here(name, value):
    with pytest.raises(RequestError, match=f"extra_body holds '{name}', which would go to the server in place of"):
        check_options({"extra_body": {"top_k": 1, name: value}})


@pytest.mark.parametrize("name", ["messages", "prompt"])
def test_messages_are_built_here(name):
    with pytest.raises(RequestError, match=f"{name} cannot be given, it is built here: give the question as query"):
        check_options({name: None})


@pytest.mark.parametrize("extra", [5, "messages", [("messages", [])], {"messages"}, True], ids=repr)
def test_an_extra_body_is_a_mapping(extra):
    with pytest.raises(RequestTypeError, match="extra_body is a .*; it must be a dict of the server's options"):
        check_options({"extra_body": extra})


def test_other_options_are_the_servers():
    check_options({"extra_body": {"top_k": 1, "Messages": 1}, "model": "other", "temperature": 5})
