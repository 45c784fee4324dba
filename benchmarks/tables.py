"""Fill the tables between ``<!-- table NAME -->`` and ``<!-- end -->`` of a page from the committed results."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Results = dict[str, Any]


def fill(page: Path, results: Path) -> None:
    """Rewrite every marked table of ``page``."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("*.json"))}
    text = page.read_text(encoding="utf-8")
    for name, (source, build) in TABLES.items():
        if source not in found:
            continue
        mark = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if mark.search(text):
            table = build(found)
            text = mark.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    page.write_text(text, encoding="utf-8")


def reuse_table(results: Results) -> str:
    """Percent of block tokens reused, on every trace."""
    columns = {
        "plain": "plain",
        "paper_offline_depth_first": "paper offline, depth-first",
        "paper_offline_alg5": "paper offline, alg. 5",
        "greedy_offline": "**ours offline**",
        "upper_bound": "bound, any schedule",
        "paper_online": "paper online",
        "greedy_online": "**ours online**",
        "greedy_online_unbounded": "ours online, unbounded",
    }
    return _traces(results["reuse"], columns)


def net_table(results: Results) -> str:
    """Percent of block tokens reused in whole KV blocks of 16, less the note's tokens."""
    columns = {
        "plain_kv16": "plain",
        "online_kv16_compact_note_reuse": "ours online, reuse",
        "online_kv16_compact_note_net": "**ours online, net of the note**",
        "offline_kv16_compact_note_net": "ours offline, net of the note",
    }
    return _traces(results["reuse"], columns)


def selection_table(results: Results) -> str:
    """Selection: 15 of 20 candidates, 12 pinned."""
    rows = []
    for name, row in results["reuse"]["selection"].items():
        bounded, unbounded = row["cache_40000"], row["unbounded"]
        recall = "-"
        if bounded["recall"] is not None:
            recall = f"{bounded['recall_by_rank']:.1%} -> {bounded['recall']:.1%}"
        plain = results["reuse"]["traces"][name]
        rows.append(
            [
                name,
                f"{plain['greedy_online']:.1%} -> {bounded['reuse']:.1%}",
                f"{plain['greedy_online_unbounded']:.1%} -> {unbounded['reuse']:.1%}",
                recall,
            ]
        )
    return _markdown(["trace", "reuse, cache of 40,000", "reuse, unbounded", "recall of the evidence"], rows)


def scaling_table(results: Results) -> str:
    """Time and memory."""
    figures = results["scaling"]
    rows = [
        [f"`plan_batch`, {int(size):,} contexts", f"{row['seconds']:.2f} s", f"{row['peak_rss_mb']:.0f} MB"]
        for size, row in figures["plan_batch"].items()
    ]
    for size, row in figures["match_and_order"].items():
        rows.append([f"match and order, {int(size):,} live contexts", _times(row), ""])
    rows.append(["`engine.plan`, 15 blocks of 340 characters", _times(figures["plan"]["plan"]), ""])
    rows.append(["`engine.plan` and its messages", _times(figures["plan"]["plan_and_render"]), ""])
    return _markdown(["what", "time", "peak memory of the process"], rows)


def _times(row: dict[str, float]) -> str:
    return f"p50 {row['p50_us']:.0f} us, p99 {row['p99_us']:.0f} us"


def _traces(reuse: Results, columns: dict[str, str]) -> str:
    rows = []
    for name, row in reuse["traces"].items():
        cells = ["-" if row[column] is None else f"{row[column] * 100:.1f}" for column in columns]
        rows.append([name, f"{row['contexts']:,}", *cells])
    return _markdown(["trace", "contexts", *columns.values()], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


HEADLINE = ("multihoprag.trace.bm25", "qasper.trace.dense", "narrativeqa.trace.dense", "locomo_mem.conversations.bm25")


def headline_table(results: Results) -> str:
    """The few rows of the README."""
    columns = {
        "plain": "retrieval order",
        "greedy_online": "one by one",
        "greedy_offline": "as a batch",
        "paper_offline_depth_first": "as a batch, the paper's clustering",
    }
    traces = {name: results["reuse"]["traces"][name] for name in HEADLINE}
    return _traces({"traces": traces}, columns)


def demo_table(results: Results) -> str:
    """What the demo measured with a real model."""
    names = {"plain": "plain", "plain_append_only": "plain, append-only history", "contextpilot": "**ContextPilot**"}
    rows = []
    for seed, jobs in results["demo"]["seeds"].items():
        for job, arms in jobs.items():
            for arm, row in arms.items():
                counts = [f"{row[key]:,}" for key in ("requests", "prompt_tokens", "cached_tokens", "prefilled_tokens")]
                rows.append([job, seed, names[arm], *counts, f"{row['ttft_ms_median'] / 1000:.1f} s"])
    head = ["job", "seed", "arm", "requests", "prompt tokens", "cached", "prefilled", "median TTFT"]
    return _markdown(head, rows)


TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "headline": ("reuse", headline_table),
    "reuse": ("reuse", reuse_table),
    "net": ("reuse", net_table),
    "selection": ("reuse", selection_table),
    "scaling": ("scaling", scaling_table),
    "demo": ("demo", demo_table),
}
"""name of the table -> (results file, builder)"""
