"""Fill the tables between ``<!-- table NAME -->`` and ``<!-- end -->`` of a page from the committed results."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks import tables_cost, tables_quality, tables_reliability, tables_reuse
from benchmarks.tables_reuse import Results

TABLES: dict[str, tuple[tuple[str, ...], Callable[[Results], str]]] = {
    "headline": (("reuse", "peer"), tables_reuse.headline),
    "offline": (("reuse", "peer"), tables_reuse.offline),
    "online": (("reuse", "peer"), tables_reuse.online),
    "by_cache": (("reuse", "peer"), tables_reuse.by_cache),
    "net": (("reuse", "peer"), tables_reuse.net),
    "faults": (("peer",), tables_reuse.faults),
    "selection": (("reuse",), tables_reuse.selection),
    "scaling": (("scaling", "peer_scaling"), tables_cost.scaling),
    "latency": (("scaling", "peer_latency"), tables_cost.latency),
    "steps": (("scaling",), tables_cost.steps),
    "overhead": (("overhead",), tables_cost.overhead),
    "conversations": (("conversations",), tables_cost.conversations),
    "engines": (("vllm", "llama_cpp"), tables_cost.engines),
    "quality": (("quality",), tables_quality.order),
    "quality_dedup": (("quality",), tables_quality.deduplication),
    "quality_answers": (("quality",), tables_quality.answers),
    "plain": (("plain",), tables_quality.plain),
    "plain_places": (("plain",), tables_quality.plain_places),
    "plain_right": (("plain",), tables_quality.plain_right),
    "plain_notes": (("plain",), tables_quality.plain_notes),
    "plain_dedup": (("plain",), tables_quality.plain_dedup),
    "demo": (("demo",), tables_cost.demo),
    "reliability": (("reliability",), tables_reliability.reliability),
}
"""name of the table -> (results files that it needs, builder)"""


def load(folder: Path) -> Results:
    """Read all results by the names of their files."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def filled(text: str, results: Results) -> str:
    """Return a page with every marked table made again; a table whose results are absent stays as it is."""
    for name, (sources, build) in TABLES.items():
        mark = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if mark.search(text) and all(source in results for source in sources):
            made = build(results)
            text = mark.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)
    return text


def fill(page: Path, results: Results) -> None:
    """Rewrite every marked table of a page."""
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
