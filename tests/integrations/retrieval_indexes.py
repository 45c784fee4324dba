"""Indexes over a few texts, with embeddings that need no model."""

import numpy as np

from contextpilot_integrations import retrieval
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


def load(index, folder):
    if isinstance(index, retrieval.Bm25Index):
        return retrieval.Bm25Index.load(folder)
    return retrieval.FaissIndex.load(folder, letters)


def positions(index, query, k=4):
    return [hit.position for hit in index.search(query, k)]
