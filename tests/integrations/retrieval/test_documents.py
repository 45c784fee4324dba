"""Documents at the door: whatever the caller has becomes entries."""

import subprocess
import sys
import threading

import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.types import ContextBlock
from contextpilot_integrations.retrieval.documents import NODE_FIELDS, Entry, as_entries, check_search, own_copy
from tests.conftest import require


def test_texts_and_blocks_are_taken_as_they_are():
    block = ContextBlock(text="b", id=7, title="B", metadata={"page": 1})
    found = as_entries(text for text in ("a", block))
    assert found == (Entry(block=ContextBlock(text="a")), Entry(block=block))
    assert found[1].block is block
    assert as_entries([]) == ()


def test_langchain_documents_keep_id_title_and_metadata():
    document = require("langchain_core.documents").Document
    titled = document(page_content="a", id="d1", metadata={"title": "A", "page": 1})
    odd = document(page_content="b", metadata={"title": 7})
    first, second = as_entries([titled, odd])
    assert first == Entry(block=ContextBlock(text="a", id="d1", title="A", metadata={"title": "A", "page": 1}))
    assert second.block == ContextBlock(text="b", metadata={"title": 7})


def test_nodes_keep_how_they_are_shown_and_what_they_are_from():
    schema = require("llama_index.core.schema")
    node = schema.TextNode(id_="n1", text="a", metadata={"title": "A"}, text_template="{content}!")
    node.excluded_llm_metadata_keys = ["title"]
    node.relationships[schema.NodeRelationship.SOURCE] = schema.RelatedNodeInfo(node_id="file-1")
    plain, scored = as_entries([node, schema.NodeWithScore(node=node, score=0.5)])
    assert plain == scored, "a score is of one search"
    assert plain.block == ContextBlock(text="a", id="n1", title="A", metadata={"title": "A"})
    assert plain.node["ref_doc_id"] == "file-1"
    assert (plain.node["text_template"], plain.node["excluded_llm_metadata_keys"]) == ("{content}!", ["title"])
    assert set(plain.node) <= {*NODE_FIELDS, "ref_doc_id"}


@pytest.mark.parametrize("document", [7, None, {"page_content": "a"}, b"a", ["a"]])
def test_others_are_refused_by_their_position(document):
    with pytest.raises(RequestTypeError, match=rf"documents\[1\] is a {type(document).__name__}; give a text"):
        as_entries(["a", document])


@pytest.mark.parametrize("documents", ["one text", b"bytes"])
def test_one_text_is_no_list_of_documents(documents):
    with pytest.raises(RequestTypeError, match="documents is one text"):
        as_entries(documents)


def test_a_search_is_for_a_text_and_for_one_document_or_more():
    check_search("", 1)
    for query in (None, b"tea", ["tea"]):
        with pytest.raises(RequestTypeError, match=f"query is a {type(query).__name__}"):
            check_search(query, 1)
    for k in (0, -1, True, 1.0, "1", None):
        with pytest.raises(RequestError, match="k=.* must be a whole number of at least 1"):
            check_search("tea", k)


def test_no_framework_is_imported_to_tell_its_documents():
    code = (
        "import sys\nfrom contextpilot_integrations.retrieval.documents import as_entries\n"
        "class Document: page_content, id, metadata = 'a', None, {}\n"
        "as_entries([Document()])\nprint(*(name for name in ('langchain_core', 'llama_index') if name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_a_copy_is_the_callers_and_what_cannot_be_copied_is_shared():
    lock, pages = threading.Lock(), (page for page in "ab")
    given = {"tags": ["a", {"lock": lock}], "pages": pages, "title": "A"}
    found = own_copy(given)
    assert found == given
    assert found["pages"] is pages
    found["tags"][1]["new"] = found["tags"].append("b")
    assert given == {"tags": ["a", {"lock": lock}], "pages": pages, "title": "A"}
