"""The same documents in and out of both frameworks, through either index."""

import asyncio
import subprocess
import sys

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_core.types import ContextBlock
from contextpilot_integrations.retrieval import Bm25Index, FaissIndex
from tests.conftest import require
from tests.integrations.retrieval.test_indexes import TEXTS, letters


@pytest.fixture(params=["bm25", "faiss"])
def make(request):
    if request.param == "bm25":
        require("rank_bm25")
        return Bm25Index
    require("faiss")
    return lambda documents: FaissIndex(documents, letters)


def load(index, folder):
    return Bm25Index.load(folder) if isinstance(index, Bm25Index) else FaissIndex.load(folder, letters)


# --- LangChain


@pytest.fixture
def documents():
    document = require("langchain_core.documents").Document
    return [
        document(page_content=text, id=f"d{n}", metadata={"title": f"Title {n}", "tags": ["a"]})
        for n, text in enumerate(TEXTS)
    ]


def test_langchain_documents_come_back_as_they_were(make, documents, tmp_path):
    index = make(documents)
    assert index.entries[0].block == ContextBlock(
        text=TEXTS[0], id="d0", title="Title 0", metadata={"title": "Title 0", "tags": ["a"]}
    )
    index.save(tmp_path)
    for retriever in (index.as_langchain_retriever(k=5), load(index, tmp_path).as_langchain_retriever(k=5)):
        found = retriever.invoke("milk and cheese")
        assert sorted(found, key=lambda d: d.id) == documents
        assert [d.id for d in found] == [hit.block.id for hit in index.search("milk and cheese", 5)]


def test_langchain_calls(make, documents):
    retriever = make(documents).as_langchain_retriever(k=3)
    found = retriever.invoke("salt")
    assert asyncio.run(retriever.ainvoke("salt")) == found
    assert retriever.batch(["salt", "salt"]) == [found, found]
    assert list(retriever.stream("salt")) == [found]
    assert retriever.invoke("salt", k=1) == found[:1]
    with pytest.raises(RequestError, match="k=0"):
        retriever.invoke("salt", k=0)
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        make(documents).as_langchain_retriever(k=0)


def test_what_a_pipeline_does_to_its_documents_stays_there(make, documents):
    retriever = make(documents).as_langchain_retriever()
    before = retriever.invoke("salt")
    for document in retriever.invoke("salt"):
        document.metadata["tags"].append("seen")
        document.metadata["score"] = 1
    assert retriever.invoke("salt") == before


def test_a_document_without_id_or_metadata(make):
    require("langchain_core")
    found = make([TEXTS[0], ContextBlock(text=TEXTS[1], id=7)]).as_langchain_retriever().invoke("tea")
    assert sorted((d.page_content, d.id, d.metadata) for d in found) == sorted(
        [(TEXTS[0], None, {}), (TEXTS[1], "7", {})]
    )


# --- LlamaIndex


@pytest.fixture
def nodes():
    schema = require("llama_index.core.schema")
    made = []
    for n, text in enumerate(TEXTS):
        node = schema.TextNode(id_=f"n{n}", text=text, metadata={"title": f"Title {n}", "secret": "x", "tags": ["a"]})
        node.excluded_llm_metadata_keys = ["secret"]
        node.excluded_embed_metadata_keys = ["title"]
        node.metadata_template = "{key} = {value}"
        node.metadata_separator = " / "
        node.text_template = "{metadata_str}\n---\n{content}"
        node.relationships[schema.NodeRelationship.SOURCE] = schema.RelatedNodeInfo(node_id="file-1")
        made.append(node)
    return made


def shown(node):
    modes = require("llama_index.core.schema").MetadataMode
    return [node.node_id, node.metadata, node.ref_doc_id, *(node.get_content(metadata_mode=mode) for mode in modes)]


def test_llama_index_nodes_come_back_as_they_were(make, nodes, tmp_path):
    scored = require("llama_index.core.schema").NodeWithScore
    index = make([scored(node=nodes[0], score=0.5), *nodes[1:]])
    index.save(tmp_path)
    hits = index.search("milk and cheese", 5)
    for retriever in (index.as_llama_index_retriever(k=5), load(index, tmp_path).as_llama_index_retriever(k=5)):
        found = retriever.retrieve("milk and cheese")
        assert [(n.node.node_id, n.score) for n in found] == [(hit.block.id, hit.score) for hit in hits]
        assert sorted(shown(n.node) for n in found) == sorted(map(shown, nodes))


def test_llama_index_calls(make, nodes):
    retriever = make(nodes).as_llama_index_retriever(k=3)
    found = retriever.retrieve("salt")
    assert len(found) == 3
    assert asyncio.run(retriever.aretrieve("salt")) == found
    for entry in retriever.retrieve("salt"):
        entry.node.metadata["tags"].append("seen")
    assert retriever.retrieve("salt") == found
    with pytest.raises(RequestError, match="k=0"):
        make(nodes).as_llama_index_retriever(k=0)


def test_documents_without_id_are_named_by_position(make):
    require("llama_index.core")
    found = make([TEXTS[0], TEXTS[0], TEXTS[1]]).as_llama_index_retriever().retrieve("tea")
    assert {n.node.node_id for n in found} == {"document-0", "document-1", "document-2"}


# --- from one to the other


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
