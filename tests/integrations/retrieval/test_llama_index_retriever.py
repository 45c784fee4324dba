"""LlamaIndex nodes in and out of either index."""

import asyncio
import threading

import pytest

from contextpilot_core.errors import RequestError
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, load


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


def test_metadata_that_cannot_be_copied(make):
    lock = threading.Lock()
    index = make([require("llama_index.core.schema").TextNode(text=TEXTS[0], metadata={"lock": lock})])
    assert index.as_llama_index_retriever().retrieve("tea")[0].node.metadata == {"lock": lock}
