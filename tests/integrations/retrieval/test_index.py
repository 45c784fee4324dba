"""What all indexes are: their documents, and retrievers of either framework, and only of that."""

import subprocess
import sys

import pytest

from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS


def test_documents_of_one_framework_serve_the_other(make, documents, nodes):
    back = make(documents).as_llama_index_retriever(k=1).retrieve("shrub")
    assert back[0].node.get_content() in TEXTS
    assert back[0].node.metadata["tags"] == ["a"]
    assert make(nodes).as_langchain_retriever(k=1).invoke("shrub")[0].id.startswith("n")


@pytest.mark.parametrize(
    ("call", "absent"), [("as_langchain_retriever", "llama_index"), ("as_llama_index_retriever", "langchain_core")]
)
def test_a_retriever_imports_its_own_framework_only(call, absent):
    require("rank_bm25")
    require("langchain_core")
    require("llama_index.core")
    code = (
        "import sys\nfrom contextpilot_integrations.retrieval import Bm25Index\n"
        f"Bm25Index(['a b', 'c d']).{call}()\nprint({absent!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_index_knows_its_documents(make):
    index = make(TEXTS)
    assert len(index) == len(TEXTS)
    assert [entry.block.text for entry in index.entries] == TEXTS
