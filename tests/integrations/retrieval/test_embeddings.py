"""Embeddings as they come: a callable, and the interfaces of both frameworks."""

import numpy as np
import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_integrations import retrieval
from contextpilot_integrations.retrieval import FaissIndex
from contextpilot_integrations.retrieval.embeddings import as_embedder
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, letters


def test_langchain_embeddings_tell_queries_from_documents():
    require("faiss")
    embeddings = require("langchain_core.embeddings").Embeddings

    class Telling(embeddings):
        def embed_documents(self, texts):
            return letters(texts).tolist()

        def embed_query(self, text):
            return letters([text])[0].tolist()

    plain = FaissIndex(TEXTS, letters)
    assert FaissIndex(TEXTS, Telling()).search("salt and sea", 5) == plain.search("salt and sea", 5)


def test_llama_index_embeddings():
    require("faiss")
    base = require("llama_index.core.embeddings").BaseEmbedding

    class Telling(base):
        def _get_text_embedding(self, text):
            return letters([text])[0].tolist()

        def _get_query_embedding(self, query):
            return letters([query])[0].tolist()

        async def _aget_query_embedding(self, query):
            return self._get_query_embedding(query)

    plain = FaissIndex(TEXTS, letters)
    assert FaissIndex(TEXTS, Telling()).search("salt and sea", 5) == plain.search("salt and sea", 5)


@pytest.mark.parametrize(
    ("embeddings", "error", "match"),
    [
        (None, RequestTypeError, "embeddings is a NoneType"),
        (lambda texts: [[1.0]], RequestError, r"shape \(1, 1\)"),
        (lambda texts: [1.0] * len(texts), RequestError, "shape"),
        (lambda texts: [[1.0], [1.0, 2.0]], RequestError, "equally many"),
        (lambda texts: [["a"]] * len(texts), RequestError, "equally many"),
        (lambda texts: [[float("nan")]] * len(texts), RequestError, "NaN"),
        (lambda texts: [[]] * len(texts), RequestError, "shape"),
    ],
)
def test_embeddings_are_checked(embeddings, error, match):
    require("faiss")
    with pytest.raises(error, match=match):
        retrieval.FaissIndex(TEXTS[:2], embeddings)


class Both:
    """LangChain's method names; queries are told from documents by their sign."""

    def embed_documents(self, texts):
        return [[len(text), 1] for text in texts]

    def embed_query(self, text):
        return [-len(text), 1]


def test_a_callable_embeds_documents_and_queries_alike():
    embedder = as_embedder(letters)
    assert (embedder.embed_documents(["tea", "salt"]) == letters(["tea", "salt"])).all()
    assert (embedder.embed_query("tea") == letters(["tea"])).all()


def test_an_interface_stands_above_being_callable():
    class Callable(Both):
        def __call__(self, texts):
            raise AssertionError("it has methods that tell queries from documents")

    embedder = as_embedder(Callable())
    assert embedder.embed_documents(["tea", "salt"]).tolist() == [[3, 1], [4, 1]]
    assert embedder.embed_query("tea").tolist() == [[-3, 1]]


@pytest.mark.parametrize("rows", [[[1, 2], [3, 4]], np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), ((1, 2), (3, 4))])
def test_rows_of_any_kind_become_contiguous_single_floats(rows):
    vectors = as_embedder(lambda texts: rows).embed_documents(["a", "b"])
    assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    assert vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("row", [[float("inf")], [], ["a"], 1.0])
def test_a_query_is_checked_as_documents_are(row):
    with pytest.raises(RequestError, match="embeddings"):
        as_embedder(lambda texts: [row]).embed_query("tea")


@pytest.mark.parametrize("embeddings", [None, "text-embedding-3-small", [[1.0]], 7])
def test_what_embeds_nothing_is_refused_by_its_type(embeddings):
    with pytest.raises(RequestTypeError, match=f"embeddings is a {type(embeddings).__name__}; give a callable"):
        as_embedder(embeddings)
