"""What can be sent, and what is made of what cannot."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import RequestError
from contextpilot_integrations.serving.chat import whole

HIGH, LOW = "\ud83d", "\ude00"
PIECES = st.lists(
    st.sampled_from(["tea", HIGH, LOW, "\ud800", "\udfff", "\ufeff", "\0", "\u00e9", "\U0001f600"]), max_size=9
)


def joined(pair):
    return chr(0x10000 + ((ord(pair[0][0]) - 0xD800) << 10) + ord(pair[0][1]) - 0xDC00)


@given(PIECES)
def test_halves_that_stand_together_become_their_character_and_others_the_replacement(pieces):
    text = "".join(pieces)
    right = re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\ud800-\udbff][\udc00-\udfff]", joined, text))
    assert whole(text) == right
    assert whole(right) is right
    right.encode()


@pytest.mark.parametrize(
    "value",
    ["tea", "\u00e9", "\U0001f600", {"a": ["b", ("c", 5, None, 1.5)]}, [], {}, 7, None, b"\xff", object()],
)
def test_what_can_be_sent_stays_the_same_object(value):
    assert whole(value) is value


def test_values_in_values_are_mended_and_nobodys_are_changed():
    given = {"type": "text", HIGH: [f"a{HIGH}{LOW}", ("b", LOW), {"c": HIGH, "d": 5}], "kept": ["x"]}
    copy = repr(given)
    mended = whole(given)
    assert mended == {
        "type": "text",
        "\ufffd": ["a\U0001f600", ("b", "\ufffd"), {"c": "\ufffd", "d": 5}],
        "kept": ["x"],
    }
    assert repr(given) == copy
    assert mended["kept"] is given["kept"]


def test_what_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    deep = "x"
    for _ in range(5_000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(RequestError, match="contains itself, or is nested too deeply to be sent; give plain JSON"):
            whole(value)
