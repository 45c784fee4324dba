"""Small retrieval helpers: BM25 and FAISS over the same documents, for both frameworks, with embeddings of your choice.

Each asks for the packages that it needs when it is made (extras ``retrieval``, ``lsa`` and ``minilm``; a retriever of a
framework for that framework).
"""

from contextpilot_integrations.retrieval.bm25 import Bm25Index
from contextpilot_integrations.retrieval.documents import Hit
from contextpilot_integrations.retrieval.faiss import FaissIndex
from contextpilot_integrations.retrieval.lsa import LsaEmbeddings
from contextpilot_integrations.retrieval.minilm import MiniLmEmbeddings

__all__ = ["Bm25Index", "FaissIndex", "Hit", "LsaEmbeddings", "MiniLmEmbeddings"]
