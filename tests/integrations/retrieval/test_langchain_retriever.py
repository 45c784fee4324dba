"""LangChain documents in and out of either index."""

import asyncio
import threading

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_core.types import ContextBlock
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, load


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


def test_metadata_that_cannot_be_copied(make):
    lock = threading.Lock()
    index = make([require("langchain_core.documents").Document(TEXTS[0], metadata={"lock": lock})])
    assert index.as_langchain_retriever().invoke("tea")[0].metadata == {"lock": lock}
