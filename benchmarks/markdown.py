"""Tables in Markdown."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float | None) -> str:
    """Return a share as per cent, without the sign."""
    return "-" if share is None else f"{share * 100:.1f}"


def ratio(value: float) -> str:
    """Return how many times one is another."""
    return f"{value:.2f}x" if value < 10 else f"{value:,.0f}x"
