"""What the room offers, and which packages it asks for, when."""

import subprocess
import sys

import pytest

from contextpilot_core.errors import MissingExtraError
from contextpilot_integrations import extras, retrieval
from tests.integrations.retrieval_indexes import TEXTS, letters, make_bm25


def test_the_package_offers_what_it_says():
    assert retrieval.__all__ == sorted(retrieval.__all__)
    assert all(getattr(retrieval, name).__name__ == name for name in retrieval.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = retrieval.nothing


def test_importing_asks_for_no_package():
    heavy = ("faiss", "rank_bm25", "sklearn", "torch", "transformers", "langchain_core", "llama_index")
    code = (
        "import sys\nfrom contextpilot_integrations.retrieval import *\n"
        f"print(*(name for name in {heavy} if name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("rank_bm25", lambda: retrieval.Bm25Index(TEXTS), "retrieval"),
        ("faiss", lambda: retrieval.FaissIndex(TEXTS, letters), "retrieval"),
        ("sklearn.feature_extraction.text", lambda: retrieval.LsaEmbeddings().fit(TEXTS), "lsa"),
        ("torch", lambda: retrieval.MiniLmEmbeddings(), "minilm"),
        ("langchain_core", lambda: make_bm25(TEXTS).as_langchain_retriever(), "langchain"),
        ("llama_index.core", lambda: make_bm25(TEXTS).as_llama_index_retriever(), "llama-index"),
    ],
)
def test_an_absent_package_says_what_to_install(monkeypatch, module, call, extra):
    import_module = extras.importlib.import_module

    def without(name, *rest):
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name, *rest)

    monkeypatch.setattr(extras.importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=rf'pip install "contextpilot-rag\[{extra}\]"'):
        call()
