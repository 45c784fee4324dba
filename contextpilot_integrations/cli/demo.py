"""``contextpilot-rag demo``: both jobs in every arm, with tables on the terminal and a report at the end."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from contextpilot_core import ConfigError
from contextpilot_integrations import extras
from contextpilot_integrations.demo.endpoint import Endpoint, embedded, remote
from contextpilot_integrations.demo.jobs import FULL, QUICK, gather, run_jobs
from contextpilot_integrations.demo.live import summary
from contextpilot_integrations.demo.page import check_folder, write_report


def demo(
    docs: Annotated[Path | None, typer.Option(help="Folder of your own .md, .rst or .txt files.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Your questions: one a line, or JSON.")] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint, http://.../v1.")] = None,
    model: Annotated[str | None, typer.Option(help="Its model; the first it serves by default.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Its key, if it wants one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Half the questions, half the time.")] = False,
    seed: Annotated[int, typer.Option(help="Draws the questions and their order of arrival.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for report.json and report.html.")] = Path("build/demo"),
) -> None:
    """Answer real questions over real documents, in plain retrieval order and through the reuse engine."""
    for module in ("openai", "rank_bm25", *(() if base_url else ("xllamacpp",))):
        extras.load(module, extra="demo")  # one answer for all that may be missing
    console, started = Console(), time.perf_counter()
    scale = QUICK if quick else FULL
    material = gather(docs, questions)
    with _endpoint(base_url, model, api_key, scale.answer_tokens) as endpoint:
        check_folder(out)
        text = f"Questions about {material.name}, answered by {endpoint.model} ({endpoint.where})."
        console.print(text, markup=False, highlight=False)
        run = run_jobs(material, scale, seed, endpoint, console)
    console.print(summary(run))
    figures, page = write_report(run, out)
    console.print(
        f"{time.perf_counter() - started:.0f} s. Report: {page}, figures: {figures}", markup=False, highlight=False
    )


def _endpoint(
    base_url: str | None, model: str | None, api_key: str | None, answer_tokens: int
) -> AbstractContextManager[Endpoint]:
    if base_url is not None:
        return remote(base_url, model, api_key, answer_tokens)
    if model is not None:
        raise ConfigError(f"--model {model} names a model of an endpoint; give --base-url too, or leave --model out")
    return embedded(answer_tokens)
