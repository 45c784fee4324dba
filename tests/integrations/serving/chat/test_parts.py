"""What a chat is made of: one rule for each argument, whatever the chat talks through."""

import pytest

from contextpilot_core import ConfigError, ReuseEngine
from contextpilot_integrations.serving.chat import Tenants, check_parts


class Source:
    chat = text = piece = len


GOOD = {
    "engine": [None, ReuseEngine()],
    "tenants": [None, Tenants("a key of more than sixteen bytes")],
    "tokens": [None, Source()],
    "namespace": ["default", ""],
    "session_id": [None, "u", ""],
    "instructions": ["", "Be brief."],
    "clock": [len],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_follows_its_rule_is_taken(name):
    for value in GOOD[name]:
        check_parts(**{name: value})


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [5, True, 1.5, float("nan"), 10**5000, [], {}, b"x", object(), ReuseEngine], ids=type)
def test_what_does_not_is_refused_with_name_and_rule(name, value):
    if name == "clock" and callable(value):
        return
    with pytest.raises(ConfigError, match=f"^{name} is a {type(value).__name__}.*; it must be a"):
        check_parts(**{name: value})


def test_what_is_needed_cannot_be_left_out():
    for name in ("namespace", "instructions", "clock"):
        with pytest.raises(ConfigError, match=f"{name} is a NoneType"):
            check_parts(**{name: None})
