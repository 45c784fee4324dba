"""``contextpilot-rag replay``: how much of a retrieval trace a prefix cache would reuse."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from contextpilot_core import ConfigError, EngineConfig, TraceError
from contextpilot_core.config import NoteStyle, Schedule, Strategy
from contextpilot_core.replay import Identity, Mode, ReplayResult, load_corpus, load_trace
from contextpilot_core.replay import replay as run_replay


def replay(
    trace: Annotated[Path, typer.Argument(help="Trace or conversations, .jsonl or .jsonl.gz.")],
    corpus: Annotated[list[Path], typer.Option(help="Corpus file; give the option again for a second one.")],
    top_k: Annotated[int, typer.Option(min=1, help="Documents per request.")] = 15,
    mode: Annotated[
        Mode, typer.Option(help="One batch, one request after the other, or as many together as wait.")
    ] = "offline",
    window: Annotated[int, typer.Option(min=1, help="Requests that wait together (--mode window).")] = 32,
    strategy: Annotated[Strategy, typer.Option(help="How documents are ordered.")] = "greedy",
    schedule: Annotated[Schedule, typer.Option(help="Order of a batch.")] = "depth-first",
    cache_tokens: Annotated[int, typer.Option(min=0, help="Tokens the cache holds; 0: unbounded.")] = 40_000,
    candidates: Annotated[int | None, typer.Option(min=1, help="Selection: candidates per request.")] = None,
    pinned: Annotated[int | None, typer.Option(min=0, help="Selection: best ranks that are always sent.")] = None,
    note: Annotated[NoteStyle, typer.Option(help="The order note.")] = "none",
    kv_block: Annotated[int, typer.Option(min=1, help="Tokens per KV block.")] = 1,
    identity: Annotated[Identity, typer.Option(help="One block per id, or per text.")] = "id",
    queries: Annotated[Path | None, typer.Option(help="Queries with evidence_ids, to report recall.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay a retrieval trace through a simulated prefix cache and report what was reused.

    Beside it stands what the same cache would reuse in retrieval order, request after request ("retrieval_order" in the
    JSON object).
    """
    if (candidates is None) != (pinned is None):
        raise ConfigError("--candidates and --pinned belong together; give both or neither")
    config = EngineConfig(
        strategy=strategy,
        schedule=schedule,
        cache_tokens=cache_tokens or None,
        kv_block=kv_block,
        note=note,
        budget=None if candidates is None else top_k,
        pinned=pinned,
    )
    documents, items = load_corpus(corpus), load_trace(trace, queries)
    if not any(item.doc_ids for item in items):
        raise TraceError(f"{trace}: no line has any doc_ids; give a trace of retrieved documents")
    if queries is not None and not any(item.evidence for item in items):
        raise TraceError(f"{queries}: no evidence_ids for any query of the trace; give queries that know theirs")
    with _progress() as bar:
        task = bar.add_task("replay", total=None)
        result = run_replay(
            items,
            documents,
            config,
            top_k=candidates or top_k,
            mode=mode,
            window=window,
            identity=identity,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    without_us = replace(config, strategy="none", note="none", budget=None, pinned=None)
    plain = run_replay(items, documents, without_us, top_k=top_k, identity=identity)
    if as_json:
        baseline = {name: getattr(plain, name) for name in ("tokens", "reused_tokens", "reuse")}
        typer.echo(json.dumps({**asdict(result), "retrieval_order": baseline}))
    else:
        Console().print(_table(trace.name, result, plain))


def _progress() -> Progress:
    """Return a bar that shows on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


MEANING = {
    "tokens": "document tokens sent",
    "reused_tokens": "of them found in the simulated prefix cache",
    "reuse": "reused_tokens / tokens",
    "note_tokens": "tokens of order notes, never cached",
    "net_reuse": "reuse after the notes",
    "upper_bound": "no order and no schedule can reuse more",
    "build_seconds": "time to plan the batch, or all windows",
    "recall": "share of the known evidence that was sent",
    "recall_by_rank": "the same in retrieval order",
}


def _table(name: str, result: ReplayResult, plain: ReplayResult) -> Table:
    table = Table(title=name, title_justify="left", show_header=False)
    table.add_row("reuse in retrieval order", f"{plain.reuse:.1%}", "the same cache without us", style="bold")
    for field, value in asdict(result).items():
        if value is None:
            shown = "unknown" if field.startswith(("upper", "peak", "recall")) else "-"
        elif field in ("reuse", "net_reuse", "upper_bound", "recall", "recall_by_rank"):
            shown = f"{value:.1%}"
        else:
            shown = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        table.add_row(field, shown, MEANING.get(field, ""))
    return table
