"""Small retrieval helpers: BM25 and FAISS over the same documents, for both frameworks, with embeddings of your choice.

Names are loaded when first used; each asks only for the packages that it needs (extras ``retrieval``, ``lsa`` and
``minilm``; a retriever of a framework for that framework).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextpilot_integrations.retrieval.bm25 import Bm25Index
    from contextpilot_integrations.retrieval.documents import Hit
    from contextpilot_integrations.retrieval.faiss import FaissIndex
    from contextpilot_integrations.retrieval.lsa import LsaEmbeddings
    from contextpilot_integrations.retrieval.minilm import MiniLmEmbeddings

_HOMES = {
    "Bm25Index": "bm25",
    "FaissIndex": "faiss",
    "Hit": "documents",
    "LsaEmbeddings": "lsa",
    "MiniLmEmbeddings": "minilm",
}

__all__ = ["Bm25Index", "FaissIndex", "Hit", "LsaEmbeddings", "MiniLmEmbeddings"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
