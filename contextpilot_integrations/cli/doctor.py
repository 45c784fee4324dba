"""``contextpilot-rag doctor``: why prompts in files do not share a prefix."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from contextpilot_core.diagnose import Diagnosis, diagnose
from contextpilot_integrations.doctor import read_prompts


def doctor(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Prompts in the order sent: .json, .jsonl, or text. Two or more in all."),
    ],
    kv_block: Annotated[int, typer.Option(min=1, help="Tokens per KV block of the server.")] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say where prompts first differ, what kind of thing differs, what that costs and what to change.

    A .json file holds a list of messages, a request body with messages and tools, a text, or a list of these; a
    .jsonl file one of these per line. No text of a prompt is printed.
    """
    found = [(file, prompt) for file in files for prompt in read_prompts(file)]
    diagnosis = diagnose([prompt for _, prompt in found], kv_block=kv_block)
    names = [str(file) for file, _ in found]
    if as_json:
        typer.echo(json.dumps(_as_dict(diagnosis, names)))
        return
    for number, name in enumerate(names, start=1):
        typer.echo(f"Prompt {number}: {name}")
    typer.echo()
    typer.echo(diagnosis.explain())


def _as_dict(diagnosis: Diagnosis, names: list[str]) -> dict[str, Any]:
    """Return the diagnosis with what it computes."""
    result = {**asdict(diagnosis), "prompts": names, "fine": diagnosis.fine, "kinds": diagnosis.kinds}
    for shown, pair in zip(result["pairs"], diagnosis.pairs, strict=True):
        shown |= {"lost_tokens": pair.lost_tokens, "precedes_documents": pair.precedes_documents}
        for entry, finding in zip(shown["findings"], pair.findings, strict=True):
            entry |= {"fine": finding.fine, "meaning": finding.meaning, "advice": finding.advice}
    return result
