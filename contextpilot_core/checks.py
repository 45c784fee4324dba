"""What callers configure, checked where it comes in: each check returns the value, or raises what says the rule.

``fix`` ends the message. It is a remedy: a usual value, or what to give.
"""

import math
from collections.abc import Sequence

from contextpilot_core.errors import ConfigError, ContextPilotError


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `ConfigError` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}; choose one of them")


def whole_number(
    name: str,
    value: object,
    fix: str,
    *,
    least: int = 1,
    most: int | None = None,
    error: type[ContextPilotError] = ConfigError,
) -> int:
    """Return ``value``; raise ``error`` unless it is an int (a bool is none) from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        rule = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{name}={value!r} must be a whole number {rule}; {fix}")
    return value


def number(
    name: str, value: object, fix: str, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """Return ``value``; raise `ConfigError` unless it is an int or a float (no bool, no NaN) within the bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (above < value and least <= value <= most):
        bounds = (("above", above), ("of at least", least), ("of at most", most))
        rule = " and ".join(f"{words} {bound:g}" for words, bound in bounds if math.isfinite(bound))
        raise ConfigError(f"{name}={value!r} must be a number {rule}; {fix}")
    return value
