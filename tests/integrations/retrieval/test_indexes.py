"""One suite over all indexes: order, ties, folders, and what is refused."""

import json

import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.types import ContextBlock
from tests.integrations.retrieval_indexes import TEXTS, load, make_bm25, make_exact, make_hnsw, positions


@pytest.fixture(params=[make_bm25, make_exact, make_hnsw], ids=["bm25", "exact", "hnsw"])
def make(request):
    return request.param


def test_the_best_come_first(make):
    index = make(TEXTS)
    hits = index.search("milk and cheese", 3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(hits) == 3
    assert all(hit.block == ContextBlock(text=TEXTS[hit.position]) for hit in hits)
    assert len(index) == 5


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


def test_no_documents_no_hits(make, tmp_path):
    index = make([])
    assert index.search("milk", 3) == []
    index.save(tmp_path)
    assert load(index, tmp_path).search("milk", 3) == []


@pytest.mark.parametrize("texts", [["", " "], ["..."], ["one"]])
def test_documents_without_words_are_still_returned(make, texts):
    assert positions(make(texts), "milk", 9) == list(range(len(texts)))
    assert len(make(texts).search("", 1)) == 1


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
