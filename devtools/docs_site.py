"""Hooks of the documentation's build: pages that stand elsewhere in the repository, and nothing from elsewhere."""

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from contextpilot_core.diagnose.report import MEANINGS

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "notebooks")
"""Their README.md becomes a page of the same name, with what it shows and links to beside it."""

_BESIDE = (".png", ".svg", ".ipynb")
_FETCHED = re.compile(r"""<(?:(?:script|img|iframe)\b[^>]*\bsrc|link\b[^>]*\bhref)=["'](?:https?:)?//""")
_log = logging.getLogger(f"mkdocs.hooks.{__name__}")  # a warning here fails a strict build


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs``."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.name == "README.md" or path.suffix in _BESIDE:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what the code knows."""
    rows = "\n".join(f"| `{kind}` | {meaning} | {advice} |" for kind, (meaning, advice) in MEANINGS.items())
    return markdown.replace("<!-- findings -->", rows)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Warn of a page that would fetch something from another host when it is read."""
    for found in _FETCHED.finditer(output):
        _log.warning("%s fetches something from elsewhere: %s ...", page.file.src_uri, found[0])
    return output
