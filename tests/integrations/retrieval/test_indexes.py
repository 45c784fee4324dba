"""BM25 and FAISS over the same documents: order, ties, folders, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import ConfigError, MissingExtraError, RequestError, RequestTypeError
from contextpilot_core.types import ContextBlock
from contextpilot_integrations import extras, retrieval
from tests.conftest import require

TEXTS = [
    "Green tea comes from the leaves of a shrub that grows in the hills.",
    "Milk is what cows give; cheese and butter are made from milk.",
    "Salt is taken from the sea or from mines; salt keeps food from going bad.",
    "Sheep give wool and milk, and their cheese is salty.",
    "Ships sail the sea with tea and salt in their holds.",
]


def letters(texts):
    """Twelve numbers per text: how often it holds each of the commonest letters."""
    return np.array([[text.count(letter) for letter in "etaoinshrdlu"] for text in texts], np.float32)


def make_bm25(documents):
    require("rank_bm25")
    return retrieval.Bm25Index(documents)


def make_exact(documents):
    require("faiss")
    return retrieval.FaissIndex(documents, letters)


def make_hnsw(documents):
    require("faiss")
    return retrieval.FaissIndex(documents, letters, kind="hnsw")


@pytest.fixture(params=[make_bm25, make_exact, make_hnsw], ids=["bm25", "exact", "hnsw"])
def make(request):
    return request.param


def load(index, folder):
    if isinstance(index, retrieval.Bm25Index):
        return retrieval.Bm25Index.load(folder)
    return retrieval.FaissIndex.load(folder, letters)


def positions(index, query, k=4):
    return [hit.position for hit in index.search(query, k)]


def test_the_best_come_first(make):
    index = make(TEXTS)
    hits = index.search("milk and cheese", 3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(hits) == 3
    assert all(hit.block == ContextBlock(text=TEXTS[hit.position]) for hit in hits)
    assert len(index) == 5


def test_bm25_finds_the_words():
    assert set(positions(make_bm25(TEXTS), "cheese from milk", 2)) == {1, 3}
    assert positions(make_bm25(TEXTS), "SHRUB?", 1) == [0]


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


@pytest.mark.parametrize("copies", [3, 40, 300])
def test_equal_scores_keep_the_order_of_the_documents(make, copies):
    texts = [text for text in TEXTS[:3] for _ in range(copies)]
    found = positions(make(texts), "salt and milk", 2 * copies - 1)
    groups = [position // copies for position in found]
    assert len(found) == 2 * copies - 1
    for group in set(groups):
        members = [position for position in found if position // copies == group]
        assert members == list(range(group * copies, group * copies + len(members)))
    assert sorted(groups, key=groups.index) == groups


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


def test_no_documents_no_hits(make, tmp_path):
    index = make([])
    assert index.search("milk", 3) == []
    index.save(tmp_path)
    assert load(index, tmp_path).search("milk", 3) == []


@pytest.mark.parametrize("texts", [["", " "], ["..."], ["one"]])
def test_documents_without_words_are_still_returned(make, texts):
    assert positions(make(texts), "milk", 9) == list(range(len(texts)))
    assert len(make(texts).search("", 1)) == 1


# --- folders


DOCUMENTS = [
    ContextBlock(text=TEXTS[0], id=3, title="Tea", metadata={"title": "Tea", "pages": [1, 2], "ä": "\ud800"}),
    ContextBlock(text="odd \ud800 {x} \x00 " + TEXTS[1], id="b"),
    TEXTS[2],
    TEXTS[3],
]


def test_a_loaded_index_answers_alike(make, tmp_path):
    index = make(DOCUMENTS)
    index.save(tmp_path / "new" / "folder")
    again = load(index, tmp_path / "new" / "folder")
    assert again.entries == index.entries
    for query in ("milk", "salt from the sea", ""):
        assert again.search(query, 4) == index.search(query, 4)
    again.save(tmp_path / "new" / "folder")
    assert load(index, tmp_path / "new" / "folder").entries == index.entries


def test_folders_hold_json_and_faiss_files_only(make, tmp_path):
    make(DOCUMENTS).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"documents.json", "index.faiss"}
    assert json.loads((tmp_path / "documents.json").read_text("utf-8"))["version"] == 1


def test_metadata_that_json_cannot_hold_is_named_and_nothing_is_written(make, tmp_path):
    index = make([TEXTS[0], ContextBlock(text=TEXTS[1], metadata={"at": object()})])
    with pytest.raises(RequestTypeError, match=r"documents\[1\] cannot be saved"):
        index.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_no_index(make, tmp_path):
    index = make(TEXTS)
    with pytest.raises(RequestError, match=r"holds no documents\.json"):
        load(index, tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"version": 1, "kind": "bm25", "options": {}, "documents": [{"text": 3}]}', "damaged"),
        ('{"version": 9, "kind": "bm25", "options": {}, "documents": []}', "version 9"),
        ('{"version": 1, "kind": "other", "options": {}, "documents": []}', "'other'"),
    ],
)
def test_damaged_or_foreign_files_are_refused(tmp_path, content, match):
    require("rank_bm25")
    (tmp_path / "documents.json").write_text(content)
    with pytest.raises(RequestError, match=match):
        retrieval.Bm25Index.load(tmp_path)


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


def test_bm25_with_its_own_tokenizer_and_parameters(tmp_path):
    require("rank_bm25")

    def ends(text):
        return [word[-2:] for word in text.split()]

    index = retrieval.Bm25Index(["red house", "blue mouse", "big tree", "old dog"], tokenize=ends, k1=1.2, b=0.5)
    assert positions(index, "louse", 2) == [0, 1]
    index.save(tmp_path)
    assert retrieval.Bm25Index.load(tmp_path, tokenize=ends).search("louse", 4) == index.search("louse", 4)


# --- what is refused


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None])
def test_k_is_checked(make, k):
    with pytest.raises(RequestError, match="k="):
        make(TEXTS).search("milk", k)


def test_queries_are_texts(make):
    with pytest.raises(RequestTypeError, match="query is a list"):
        make(TEXTS).search(["milk"], 2)


@pytest.mark.parametrize("documents", ["one text", [7], [None], [{"text": "x"}]])
def test_documents_of_other_types_are_refused(make, documents):
    with pytest.raises(RequestTypeError, match="documents"):
        make(documents)


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


def test_other_embeddings_for_the_query_are_refused():
    require("faiss")
    rows = iter([[[1.0, 2.0]] * 5, [[1.0]]])
    index = retrieval.FaissIndex(TEXTS, lambda texts: next(rows))
    with pytest.raises(RequestError, match="1 dimensions, the index 2"):
        index.search("milk", 1)


def test_the_kind_is_checked():
    with pytest.raises(ConfigError, match="'ivf' is not one of 'exact', 'hnsw'"):
        retrieval.FaissIndex(TEXTS, letters, kind="ivf")


# --- packages


def test_the_package_offers_what_it_says():
    assert retrieval.__all__ == sorted(retrieval.__all__)
    assert all(getattr(retrieval, name).__name__ == name for name in retrieval.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = retrieval.nothing


def test_importing_asks_for_no_package():
    heavy = ("faiss", "rank_bm25", "sklearn", "torch", "transformers", "langchain_core", "llama_index")
    code = (
        "import sys\nfrom contextpilot_integrations.retrieval import *\n"
        f"print(*(name for name in {heavy} if name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("rank_bm25", lambda: retrieval.Bm25Index(TEXTS), "retrieval"),
        ("faiss", lambda: retrieval.FaissIndex(TEXTS, letters), "retrieval"),
        ("sklearn.feature_extraction.text", lambda: retrieval.LsaEmbeddings().fit(TEXTS), "lsa"),
        ("torch", lambda: retrieval.MiniLmEmbeddings(), "minilm"),
        ("langchain_core", lambda: make_bm25(TEXTS).as_langchain_retriever(), "langchain"),
        ("llama_index.core", lambda: make_bm25(TEXTS).as_llama_index_retriever(), "llama-index"),
    ],
)
def test_an_absent_package_says_what_to_install(monkeypatch, module, call, extra):
    import_module = extras.importlib.import_module

    def without(name, *rest):
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name, *rest)

    monkeypatch.setattr(extras.importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=rf'pip install "contextpilot-rag\[{extra}\]"'):
        call()
