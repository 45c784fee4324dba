"""Notebooks as pages of the documentation: their cells as Markdown, their stored outputs as they are."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the Markdown of a notebook, and its pictures by the names that it gives them."""
    pictures: dict[str, bytes] = {}
    parts = list[str]()
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else _fenced(source, "python"))
        for output in cell.get("outputs", ()):
            parts.extend(_shown(output, f"{path.stem}-{len(pictures)}.png", pictures))
    return "\n\n".join(parts), pictures


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yield an output in the richest form that it has."""
    data = output.get("data", {})
    if "image/png" in data:
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        yield f"![What the code above draws]({name})"
    elif "text/html" in data:
        lines = "".join(data["text/html"]).splitlines()
        yield "\n".join(line for line in lines if line.strip())  # an empty line would end the HTML
    else:
        yield _fenced("".join(output.get("text") or data["text/plain"]), "text")


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
