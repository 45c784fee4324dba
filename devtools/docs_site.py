"""Hooks of the documentation's build: pages that stand elsewhere in the repository, and nothing from elsewhere."""

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from contextpilot_core.diagnose.report import MEANINGS
from devtools.notebook_pages import page_of

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "notebooks")
"""Their README.md, pictures and notebooks become pages and pictures under the same names."""

_OUTSIDE = re.compile(rf"\]\(\.\./(?=(\.\./)*({'|'.join(FOLDERS)})/)")
_FETCHED = re.compile(r"""<(?:(?:script|img|iframe)\b[^>]*\bsrc|link\b[^>]*\bhref)=["'](?:https?:)?//""")
_log = logging.getLogger(f"mkdocs.hooks.{__name__}")  # a warning here fails a strict build


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in ``docs``."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.name == "README.md" or path.suffix in (".png", ".svg"):
                files.append(File.generated(config, name, abs_src_path=str(path)))
            elif path.suffix == ".ipynb":
                markdown, pictures = page_of(path)
                files.append(File.generated(config, name.replace(".ipynb", ".md"), content=markdown))
                for picture, content in pictures.items():
                    files.append(File.generated(config, f"{folder}/{picture}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what the code knows; in the build, a notebook is a page, and other folders stand inside ``docs``."""
    rows = "\n".join(f"| `{kind}` | {meaning} | {advice} |" for kind, (meaning, advice) in MEANINGS.items())
    markdown = markdown.replace("<!-- findings -->", rows)
    if page.file.src_uri.startswith("notebooks/"):
        return markdown.replace(".ipynb)", ".md)")
    return _OUTSIDE.sub("](", markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Warn of a page that would fetch something from another host when it is read."""
    for found in _FETCHED.finditer(output):
        _log.warning("%s fetches something from elsewhere: %s ...", page.file.src_uri, found[0])
    return output
