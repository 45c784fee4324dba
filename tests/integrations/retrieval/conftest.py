"""The same documents as objects of each framework, and either index to put them into."""

import pytest

from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, make_bm25, make_exact


@pytest.fixture
def documents():
    document = require("langchain_core.documents").Document
    return [
        document(page_content=text, id=f"d{n}", metadata={"title": f"Title {n}", "tags": ["a"]})
        for n, text in enumerate(TEXTS)
    ]


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


@pytest.fixture(params=[make_bm25, make_exact], ids=["bm25", "faiss"])
def make(request):
    return request.param
