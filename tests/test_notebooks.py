"""The notebooks run from top to bottom on the embedded model, and what is stored of them is fit to be read."""

import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from contextpilot_integrations.serving.model import PACKAGE
from tests.conftest import absent, require

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDED = {
    "2_langchain": ("langchain_core", "langchain_openai", "sklearn"),
    "3_llama_index": ("llama_index.core", "llama_index.llms.openai_like", "rank_bm25"),
}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|opt|root|tmp|usr|work)/|[A-Z]:\\\\Users")

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return require("nbformat").read(path, as_version=4)


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "1_quickstart",
        "2_langchain",
        "3_llama_index",
        "4_multi_turn",
        "5_batch",
    ]


@by_name
def test_it_runs(path, tmp_path, monkeypatch):
    nbclient = require("nbclient")
    for module in ("ipykernel", "matplotlib", "openai", "xllamacpp", *NEEDED.get(path.stem, ())):
        require(module)
    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        absent(f"{PACKAGE} is not installed")
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # this working tree, installed or not
    notebook = read(folder / path.name)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


@by_name
def test_what_is_stored_is_complete(path):
    notebook = read(path)
    assert len(notebook.cells) < 20
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert not MACHINE_PATH.search(path.read_text(encoding="utf-8"))
