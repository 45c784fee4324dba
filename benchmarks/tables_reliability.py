"""The table of what holds: all results by name in, Markdown out."""

from typing import Any

from benchmarks.markdown import table

COMMAND = "`python -m benchmarks.reliability {}`"


def reliability(results: dict[str, Any]) -> str:
    """Every section that was run: what was tried, how often, and what broke."""
    rows = []
    for layer, row in results["reliability"]["isolation"]["layers"].items():
        tried = f"isolation of tenants: {layer}"
        broke = f"{row['differences']:,}"
        rows.append([tried, f"{row['runs']:,} programs, {row['steps']:,} steps", broke, COMMAND.format("isolation")])
    return table(["tried", "how often", "broke", "command"], rows)
