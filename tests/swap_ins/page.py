"""The page that holds the table."""

from collections.abc import Sequence

from tests.snippets import ROOT
from tests.swap_ins.measure import Row, table

PAGE = ROOT / "docs" / "swap-ins.md"
_START, _END = "<!-- table swap-ins -->\n", "<!-- end -->"


def table_of(page: str) -> str:
    return page.split(_START)[1].split(_END)[0].rstrip("\n")


def with_table(page: str, rows: Sequence[Row]) -> str:
    before, rest = page.split(_START)
    return f"{before}{_START}{table(rows)}\n{_END}{rest.split(_END, 1)[1]}"
