"""Which answers a conversation keeps, and how many it can ask for."""

import pytest

from contextpilot_core import RequestError
from contextpilot_integrations.serving.chat import refuse_more_than_one, room_for, says_something


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
    refuse_more_than_one({"n": n})  # an object is a client library's word for "left out"
    refuse_more_than_one({"n": n, "extra_body": {"n": n}})
    refuse_more_than_one({"extra_body": None})


@pytest.mark.parametrize("n", [2, 128, 0, -1, 2.5, "2"])
@pytest.mark.parametrize("place", [lambda n: {"n": n}, lambda n: {"n": 1, "extra_body": {"n": n}}])
def test_another_number_of_answers_is_refused_with_what_to_do(n, place):
    with pytest.raises(RequestError, match=f"n={n!r} .* leave n out, and ask once for each answer"):
        refuse_more_than_one(place(n))


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
