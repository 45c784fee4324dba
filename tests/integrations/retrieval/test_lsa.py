"""Latent semantic vectors, without a model."""

import asyncio

import numpy as np
import pytest

from contextpilot_core.errors import ConfigError, RequestError
from contextpilot_integrations.retrieval import FaissIndex, LsaEmbeddings
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS


def lengths(rows):
    return np.linalg.norm(rows, axis=1)


def test_lsa_finds_related_texts_without_a_model():
    require("sklearn")
    require("faiss")
    index = FaissIndex(TEXTS, LsaEmbeddings(3))
    assert {hit.position for hit in index.search("butter and cheese", 2)} == {1, 3}
    assert index.search("nothing known", 2)[0].score == 0


def test_lsa_is_the_same_every_time_and_of_length_one():
    require("sklearn")
    one, two = (LsaEmbeddings(4).fit(TEXTS)([*TEXTS, "zzz"]) for _ in range(2))
    assert (one == two).all()
    assert one.dtype == np.float32
    assert lengths(one) == pytest.approx([1] * 6)


@pytest.mark.parametrize("texts", [["tea"], ["tea", "milk"], ["tea tea"], ["tea with milk"], ["tea", "", "milk"]])
def test_few_texts_and_words_give_few_dimensions(texts):
    require("sklearn")
    rows = LsaEmbeddings(128).fit(texts)(texts)
    assert rows.shape[0] == len(texts)
    assert 2 <= rows.shape[1] <= len(texts) + 1
    assert lengths(rows) == pytest.approx([1] * len(texts))


def test_lsa_has_the_method_names_of_langchain():
    require("sklearn")
    lsa = LsaEmbeddings(2).fit(TEXTS)
    assert lsa.embed_query("milk") == lsa.embed_documents(["milk"])[0]
    assert isinstance(lsa.embed_query("milk")[0], float)


@pytest.mark.parametrize("text", ["zzz", "", "...", "unknown words alone"])
def test_a_text_without_a_known_word_is_like_no_other(text):
    require("sklearn")
    lsa = LsaEmbeddings(3).fit(TEXTS)
    rows = lsa([*TEXTS, text, "qqq"])
    assert rows[-2] @ rows[:-2].T == pytest.approx([0] * len(TEXTS))
    assert rows[-2] @ rows[-1] == 1


@pytest.mark.parametrize("question", ["milk", "zzz", ""])
def test_lsa_in_a_store_of_langchain_asked_either_way(question):
    require("sklearn")
    require("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    lsa = LsaEmbeddings(3).fit(TEXTS)

    async def asynchronously():
        store = InMemoryVectorStore(lsa)
        await store.aadd_texts([*TEXTS, "..."])
        retriever = store.as_retriever(search_kwargs={"k": 2})
        return [found.page_content for found in await retriever.ainvoke(question)]

    store = InMemoryVectorStore(lsa)
    store.add_texts([*TEXTS, "..."])
    found = [found.page_content for found in store.as_retriever(search_kwargs={"k": 2}).invoke(question)]
    assert asyncio.run(asynchronously()) == found
    assert "milk" in found[0] if question == "milk" else found[0] == "..."


def test_lsa_refuses_what_it_cannot_learn():
    require("sklearn")
    with pytest.raises(RequestError, match="no word"):
        LsaEmbeddings().fit(["", "..."])
    with pytest.raises(RequestError, match="call fit"):
        LsaEmbeddings()(["tea"])
    with pytest.raises(ConfigError, match="dimensions"):
        LsaEmbeddings(0)


def test_an_index_with_lsa_is_loaded_with_fresh_lsa(tmp_path):
    require("sklearn")
    require("faiss")
    index = FaissIndex(TEXTS, LsaEmbeddings(3))
    index.save(tmp_path)
    again = FaissIndex.load(tmp_path, LsaEmbeddings(3))
    assert again.search("salt of the sea", 5) == index.search("salt of the sea", 5)


def test_fitted_lsa_stays_as_it_is():
    require("sklearn")
    require("faiss")
    lsa = LsaEmbeddings(3).fit(TEXTS)
    before = lsa(TEXTS)
    FaissIndex(["other words entirely"], lsa)
    assert (lsa(TEXTS) == before).all()
