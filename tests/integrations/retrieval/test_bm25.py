"""BM25 over documents."""

import json
import math

import pytest

from contextpilot_integrations import retrieval
from contextpilot_integrations.retrieval import bm25
from tests.conftest import require
from tests.integrations.retrieval_indexes import TEXTS, make_bm25, positions


def test_bm25_finds_the_words():
    assert set(positions(make_bm25(TEXTS), "cheese from milk", 2)) == {1, 3}
    assert positions(make_bm25(TEXTS), "SHRUB?", 1) == [0]


def test_bm25_with_its_own_tokenizer_and_parameters(tmp_path):
    require("rank_bm25")

    def ends(text):
        return [word[-2:] for word in text.split()]

    index = retrieval.Bm25Index(["red house", "blue mouse", "big tree", "old dog"], tokenize=ends, k1=1.2, b=0.5)
    assert positions(index, "louse", 2) == [0, 1]
    index.save(tmp_path)
    assert retrieval.Bm25Index.load(tmp_path, tokenize=ends).search("louse", 4) == index.search("louse", 4)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (1.2, 0.0), (0.5, 1.0)])
def test_scores_are_those_of_okapi(k1, b):
    require("rank_bm25")
    documents = ["tea milk", "tea tea tea sugar", "salt", "sea", "mine"]
    index = retrieval.Bm25Index(documents, k1=k1, b=b)
    mean = sum(len(text.split()) for text in documents) / 5
    idf = math.log((5 - 2 + 0.5) / (2 + 0.5))
    expected = []
    for text in documents:
        words = text.split()
        count = words.count("tea")
        expected.append(idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(words) / mean)))
    hits = index.search("tea", 5)
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected, reverse=True))
    assert [hit.position for hit in hits] == sorted(range(5), key=lambda position: (-expected[position], position))


def test_words_are_lower_case_words_numbers_and_identifiers():
    assert bm25.words("Größe: max_tokens=16, O'Neil!") == ["größe", "max_tokens", "16", "o", "neil"]
    assert bm25.words(" .,") == []


def test_the_tokenizer_is_not_saved_and_the_parameters_are(tmp_path):
    require("rank_bm25")
    retrieval.Bm25Index(["Tea", "milk", "salt"], tokenize=str.split, k1=1.2, b=0.5).save(tmp_path)
    assert json.loads((tmp_path / "documents.json").read_text())["options"] == {"k1": 1.2, "b": 0.5}
    assert retrieval.Bm25Index.load(tmp_path).search("tea", 1)[0].score > 0
    assert retrieval.Bm25Index.load(tmp_path, tokenize=str.split).search("tea", 1)[0].score == 0
