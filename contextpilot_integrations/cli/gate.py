"""``contextpilot-rag gate``: is it safe to reorder, annotate and de-duplicate in front of this model?"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from contextpilot_core.config import NoteStyle
from contextpilot_integrations.gate.cases import read_cases
from contextpilot_integrations.gate.counts import count
from contextpilot_integrations.gate.records import Record, ScoreFile
from contextpilot_integrations.gate.report import Report, report
from contextpilot_integrations.gate.server import Metric, choose_scorer, connect
from contextpilot_integrations.gate.trials import Mode, Scorer, Trial, evaluate, make_trials
from contextpilot_integrations.gate.verdict import MARGIN, Judgement

INSTRUCTIONS = "Answer the question from the documents, as briefly as you can."


def gate(
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint, http://.../v1.")],
    questions: Annotated[Path, typer.Option(help="Questions with documents and gold answers, .jsonl.")],
    model: Annotated[str | None, typer.Option(help="Its model; the first it serves by default.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Its key, if it wants one.")] = None,
    resume: Annotated[Path, typer.Option(help="Scores are kept here; a second run goes on.")] = Path("gate.jsonl"),
    mode: Annotated[Mode, typer.Option(help="One request after the other, or all together.")] = "online",
    cache_tokens: Annotated[int, typer.Option(min=0, help="Tokens its cache holds; 0: unbounded.")] = 40_000,
    note: Annotated[NoteStyle, typer.Option(help="The order note that it writes.")] = "none",
    metric: Annotated[
        Metric | None, typer.Option(help="Default: likelihood where the server can tell, else answers.")
    ] = None,
    margin: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of what the documents bring that may be lost.")
    ] = MARGIN,
    instructions: Annotated[str, typer.Option(help="System message of every prompt.")] = INSTRUCTIONS,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Longest answer (--metric answers).")] = 64,
    seed: Annotated[int, typer.Option(help="Draws the random orders.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask every question in every arm, paired, and say what the answers lose.

    A line of the file: {"query": "...", "documents": ["best first", ...], "answers": ["gold", ...]}; with "earlier":
    [{"query", "documents", "answer"}, ...] it is a turn of a conversation, and tests de-duplication instead of order.
    "cluster": "..." names what makes questions depend on each other. The likelihood is that of the first gold answer.
    Exit status 0: what the deployment sends, its note included, is safe; 1: not safe, or not shown; 2: nothing could be
    measured, also because too few questions are changed; then nothing is asked.
    """
    cases = read_cases(questions)
    trials = make_trials(cases, mode=mode, cache_tokens=cache_tokens or None, instructions=instructions, seed=seed)
    for each in count(cases, trials):
        if not each.enough:  # of the other kind there is
            typer.echo(f'{each}: its verdict will be "not shown"', err=True)
    with connect(base_url, model, api_key) as server:
        scorer = choose_scorer(server, metric, answer_tokens=answer_tokens)
        records = _ask(trials, scorer, ScoreFile(resume, scorer.settings))
    clusters = {trial.key: trial.cluster for trial in trials if trial.cluster}
    found = report(cases, records, scorer.metrics, note=note, margin=margin, clusters=clusters)
    if as_json:
        typer.echo(json.dumps({"model": server.model, "margin": margin, "note": note, **asdict(found)}))
    else:
        _show(found, Console())
    raise typer.Exit(2 if not found.measured else 0 if found.safe else 1)


def _ask(trials: Sequence[Trial], scorer: Scorer, scores: ScoreFile) -> list[Record]:
    console = Console(stderr=True)
    asked = evaluate(trials, scorer, scores)
    return list(track(asked, "asking", len(trials), console=console, transient=True, disable=not console.is_terminal))


def _show(found: Report, console: Console) -> None:
    for name, part in (("Order", found.order), ("De-duplication", found.dedup)):
        if part is None:
            continue
        for judgement in (part.judgement, *part.others):
            if judgement is not None:
                console.print(_table(name, judgement))
        counts = f"{part.changed} of {part.questions} questions changed."
        console.print(Text.assemble(f"{name}: ", (part.verdict, "green" if part.safe else "red"), f". {counts}"))
        console.print(f"{part.reason[0].upper()}{part.reason[1:]}.\n", markup=False, highlight=False, soft_wrap=True)


def _table(name: str, judgement: Judgement) -> Table:
    """Return mean scores and paired differences, those of the baseline first."""
    title = f"{name}: {judgement.metric}, {judgement.questions} questions"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("arm", no_wrap=True)
    for column in ("mean", "difference, 95 % interval", "may lose", "shown"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row(judgement.baseline, f"{judgement.score:.3f}")
    for each in judgement.comparisons:
        paired = each.difference
        interval = f"{paired.mean:+.3f} ({paired.low:+.3f} to {paired.high:+.3f})"
        table.add_row(each.arm, f"{each.score:.3f}", interval, f"{paired.largest_loss:.3f}", each.finding)
    return table
