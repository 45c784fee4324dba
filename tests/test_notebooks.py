"""The notebooks run from top to bottom, and what is stored of them is fit to be read."""

import re

import pytest

from tests.conftest import require, require_local_model
from tests.notebooks import FOLDER, execute, outputs, read

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ON_VLLM = "6_live"
NEEDED = {
    "2_langchain": ("langchain_core", "langchain_openai", "sklearn"),
    "3_llama_index": ("llama_index.core", "llama_index.llms.openai_like", "rank_bm25"),
    "7_gate": ("rank_bm25",),
}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|opt|root|tmp|usr|work)/|[A-Z]:\\\\Users")

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "1_quickstart",
        "2_langchain",
        "3_llama_index",
        "4_multi_turn",
        "5_batch",
        "6_live",
        "7_gate",
    ]


@by_name
def test_it_runs(path, tmp_path, monkeypatch):
    if path.stem == ON_VLLM:
        pytest.skip("needs a vLLM server, which runs it with the other tests of its kind: make test-vllm")
    for module in NEEDED.get(path.stem, ()):
        require(module)
    require_local_model()
    execute(path, tmp_path, monkeypatch, {})


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
