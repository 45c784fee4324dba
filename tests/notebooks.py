"""Notebooks as values, and their execution from top to bottom."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"


def read(path: Path) -> Any:
    return require("nbformat").read(path, as_version=4)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def execute(path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Run a copy of a notebook, which finds its files beside it and this working tree, installed or not."""
    nbclient = require("nbclient")
    for module in ("ipykernel", "matplotlib", "openai"):
        require(module)
    folder = scratch / "notebooks"
    shutil.copytree(FOLDER, folder)
    for name, value in {"PYTHONPATH": str(ROOT), **variables}.items():
        monkeypatch.setenv(name, value)
    notebook = read(folder / path.name)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
