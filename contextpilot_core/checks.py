"""What callers configure, checked where it comes in: each check returns the value, or raises what says the rule.

``fix`` ends the message. It is a remedy: a usual value, or what to give.
"""

import math
from collections.abc import Sequence

from contextpilot_core.errors import ConfigError, ContextPilotError

MOST = 1 << 53
"""The greatest whole number that is taken: up to it a float is exact, and no sum of ours overflows one."""

_LONGEST = 80


def shown(value: object) -> str:
    """Return a value for a message: its ``repr``, cut where it is long, and its type alone where it has none.

    An int of thousands of digits has none (it cannot be written), nor has what contains itself too deeply.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # whatever it is, the message is about the rule that it breaks
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def is_unicode(text: str) -> bool:
    """Tell whether a text can be written in UTF-8: half a character (a lone surrogate) cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def same(first: object, other: object) -> bool:
    """Tell whether two values are equal; what refuses to be compared (arrays, tensors) is equal to itself alone."""
    try:
        return first is other or bool(first == other)
    except Exception:  # noqa: BLE001  # every library refuses in its own way
        return False


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `ConfigError` unless ``value`` is one of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}={shown(value)} is not one of {', '.join(map(repr, allowed))}; choose one of them")


def whole_number(
    name: str,
    value: object,
    fix: str,
    *,
    least: int = 1,
    most: int | None = None,
    error: type[ContextPilotError] = ConfigError,
) -> int:
    """Return ``value``; raise ``error`` unless it is an int (a bool is none) from ``least`` to ``most``, or `MOST`."""
    limit = MOST if most is None else most
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limit:
        beyond = isinstance(value, int) and value > MOST
        rule = f"of at least {least}" if most is None and not beyond else f"from {least} to {limit}"
        raise error(f"{name}={shown(value)} must be a whole number {rule}; {fix}")
    return value


def number(
    name: str, value: object, fix: str, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """Return ``value``; raise `ConfigError` unless it is an int or a float (no bool, no NaN) within the bounds.

    An int is refused where no float holds it.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _within(value, above, least, most):
        bounds = (("above", above), ("of at least", least), ("of at most", most))
        rule = " and ".join(f"{words} {bound:g}" for words, bound in bounds if math.isfinite(bound))
        raise ConfigError(f"{name}={shown(value)} must be a number {rule or 'that is finite'}; {fix}")
    return value


def _within(value: float, above: float, least: float, most: float) -> bool:
    try:
        return above < float(value) and least <= value <= most
    except OverflowError:  # an int that no float holds
        return False


def kind_of(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise `ConfigError` unless ``value`` is of one of ``kinds``: ``what`` says which, and what to give else.

    The message names the type alone: the value may be a secret, or a text.
    """
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} is a {type(value).__name__}; it must be {what}")


def able(name: str, value: object, methods: Sequence[str], what: str) -> None:
    """Raise `ConfigError` unless ``value`` has all of these ``methods``; as `kind_of`."""
    for method in methods:
        if not callable(getattr(value, method, None)):
            raise ConfigError(f"{name} is a {type(value).__name__} without {method}; it must be {what}")
