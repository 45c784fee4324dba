"""The Python code of a page of documentation, run as a reader would type it: block after block, in one namespace.

A comment before a block says what it needs besides packages: ``<!-- test: NEED, NEED -->``. What stands in the code for
a server of the reader's is replaced by the address of a real one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contextpilot_core import MissingExtraError, MissingModelError
from tests.conftest import absent

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"(?:<!-- test: (?P<needs>[a-z, ]+) -->\n+)?```python\n(?P<code>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """``line``: how many stand before it."""

    code: str
    needs: frozenset[str]
    line: int


def snippets(page: Path) -> list[Snippet]:
    """All of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(found["code"], _names(found["needs"]), text.count("\n", 0, found.start("code")))
        for found in _BLOCK.finditer(text)
    ]


def needs(page: Path) -> set[str]:
    """What the snippets of a page need, all together."""
    return set().union(*(snippet.needs for snippet in snippets(page)))


def run(page: Path, addresses: Mapping[str, str]) -> None:
    """Run a page; ``addresses``: what is replaced, and by what. Skips when a package is absent."""
    names: dict[str, object] = {"__name__": page.stem}
    for snippet in snippets(page):
        code = snippet.code
        for written, real in addresses.items():
            code = code.replace(written, real)
        try:
            exec(compile("\n" * snippet.line + code, str(page), "exec"), names)  # the point of these tests
        except (MissingExtraError, MissingModelError, ModuleNotFoundError) as error:
            absent(f"{page.relative_to(ROOT)}, line {snippet.line + 1}: {error}")


def _names(written: str | None) -> frozenset[str]:
    return frozenset(written.split(", ") if written else ())
