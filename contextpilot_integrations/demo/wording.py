"""How the demo words figures for people; None is always "unknown"."""

ARM_NAMES = {
    "plain": "plain",
    "plain_append_only": "append-only",
    "contextpilot": "ContextPilot",
}
UNKNOWN = "unknown"


def tokens(count: float | None) -> str:
    """Return ``1,234``."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def percent(fraction: float | None) -> str:
    """Return ``12.3 %``."""
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f} %"


def milliseconds(time: float | None) -> str:
    """Return ``85 ms``, or ``2.41 s`` from a second on."""
    if time is None:
        return UNKNOWN
    return f"{time:.0f} ms" if time < 1000 else f"{time / 1000:.2f} s"


def change(before: float | None, after: float | None) -> str:
    """Return the change from ``before`` to ``after`` as ``−12 %``."""
    if before is None or after is None or not before:
        return UNKNOWN
    return f"{100 * (after - before) / before:+.0f} %".replace("-", "−")
