"""What every chat is made of, checked when it is made: the same rules, whatever it talks through."""

from typing import Any

from contextpilot_core import ReuseEngine
from contextpilot_core.checks import able, kind_of
from contextpilot_integrations.serving.chat.tenants import Tenants
from contextpilot_integrations.serving.tokens import check_source

_RULES = {
    "engine": (ReuseEngine, "a ReuseEngine, or None for a new one"),
    "tenants": (Tenants, "a Tenants, or None for no salts"),
    "namespace": (str, "a str: the tenant's name, 'default' without any"),
    "session_id": (str, "a str, or None for none; convert it with str()"),
    "instructions": (str, "a str: the system message, '' for none"),
}
_NEEDED = frozenset({"namespace", "instructions"})


def check_parts(**given: Any) -> None:
    """Check what a chat is made with, each under the name of its argument: those of the rules, ``tokens``, ``clock``.

    Raises:
        ConfigError: one is of another type.
    """
    for name, value in given.items():
        if name == "tokens":
            check_source(value)
        elif name == "clock":
            able(name, value, ["__call__"], "a function that returns seconds")
        elif value is not None or name in _NEEDED:
            kind_of(name, value, *_RULES[name])
