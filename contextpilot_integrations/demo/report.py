"""The files that a run leaves: ``report.json`` for programs and ``report.html`` for people."""

import json
from pathlib import Path

from contextpilot_integrations.demo.html import report_html
from contextpilot_integrations.demo.results import Run


def write_report(run: Run, folder: Path) -> tuple[Path, Path]:
    """Write both files into ``folder``, which is made when it does not exist, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figures, page = folder / "report.json", folder / "report.html"
    figures.write_text(json.dumps(run.figures(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    page.write_text(report_html(run), "utf-8")
    return figures, page
