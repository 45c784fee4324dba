"""FAISS over documents: exact search, HNSW, and the files of both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import ConfigError, RequestError
from contextpilot_integrations import retrieval
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, letters, make_exact, make_hnsw, positions


def test_exact_search_is_the_inner_product():
    index = make_exact(TEXTS)
    products = letters(TEXTS) @ letters(["salt and sea"])[0]
    assert positions(index, "salt and sea", 5) == sorted(range(5), key=lambda p: (-products[p], p))
    assert [hit.score for hit in index.search("salt and sea", 5)] == sorted(products.tolist(), reverse=True)


def test_normalized_scores_are_cosines():
    require("faiss")
    index = retrieval.FaissIndex([*TEXTS, ""], letters, normalize=True)
    hits = index.search(TEXTS[2], 6)
    assert hits[0].position == 2
    assert hits[0].score == pytest.approx(1)
    assert hits[-1].score == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=12), st.sampled_from(TEXTS), st.integers(1, 14))
def test_exact_search_ranks_by_score_then_position(texts, query, k):
    require("faiss")
    products = letters(texts) @ letters([query])[0]
    expected = sorted(range(len(texts)), key=lambda p: (-products[p], p))[:k]
    assert positions(make_exact(texts), query, k) == expected
    assert len(positions(make_hnsw(texts), query, k)) == len(expected)


def test_hnsw_finds_what_exact_search_finds_and_is_built_alike_twice():
    require("faiss")
    random = np.random.default_rng(7)
    vectors = {f"text {number}": random.standard_normal(24).astype(np.float32) for number in range(600)}

    def embed(texts):
        return [vectors[text] for text in texts]

    exact = retrieval.FaissIndex(list(vectors), embed, normalize=True)
    one, two = (retrieval.FaissIndex(list(vectors), embed, kind="hnsw", normalize=True) for _ in range(2))
    assert (exact.kind, one.kind) == ("exact", "hnsw")
    found = [(positions(exact, q, 10), positions(one, q, 10), positions(two, q, 10)) for q in list(vectors)[:50]]
    assert all(b == c for _, b, c in found)
    recall = sum(len(set(a) & set(b)) for a, b, _ in found) / 500
    assert recall > 0.9


def test_faiss_files_must_fit_the_documents(tmp_path):
    make_exact(TEXTS).save(tmp_path)
    make_exact(TEXTS[:3]).save(tmp_path / "three")
    with pytest.raises(RequestError, match=r"'bm25'"):
        retrieval.Bm25Index.load(tmp_path)
    other = (tmp_path / "three" / "index.faiss").read_bytes()
    for content in (other, b"no index", b""):
        (tmp_path / "index.faiss").write_bytes(content)
        with pytest.raises(RequestError, match="absent, damaged or of another index"):
            retrieval.FaissIndex.load(tmp_path, letters)
    (tmp_path / "index.faiss").unlink()
    with pytest.raises(RequestError, match="absent, damaged or of another index"):
        retrieval.FaissIndex.load(tmp_path, letters)


def test_other_embeddings_for_the_query_are_refused():
    require("faiss")
    rows = iter([[[1.0, 2.0]] * 5, [[1.0]]])
    index = retrieval.FaissIndex(TEXTS, lambda texts: next(rows))
    with pytest.raises(RequestError, match="1 dimensions, the index 2"):
        index.search("milk", 1)


def test_the_kind_is_checked():
    with pytest.raises(ConfigError, match="'ivf' is not one of 'exact', 'hnsw'"):
        retrieval.FaissIndex(TEXTS, letters, kind="ivf")
