"""Embeddings as they come: a callable, LangChain's or LlamaIndex's interface; checked vectors inside."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from contextpilot_core import RequestError, RequestTypeError

Vectors: TypeAlias = npt.NDArray[np.float32]


class RowEmbeddings(ABC):
    """Embeddings of our own: a callable from texts to rows, under LangChain's names, too."""

    @abstractmethod
    def __call__(self, texts: list[str]) -> Vectors:
        """Return one row per text."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one row per text, as LangChain's ``Embeddings`` do."""
        return [[float(value) for value in row] for row in self(texts)]

    def embed_query(self, text: str) -> list[float]:
        """Return the row of one text, as LangChain's ``Embeddings`` do."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As `embed_documents`, in another thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As `embed_query`, in another thread."""
        return await asyncio.to_thread(self.embed_query, text)


@dataclass(frozen=True)
class Embedder:
    """Two functions from texts to rows of numbers: for documents, and for queries (some models tell them apart)."""

    documents: Callable[[list[str]], Any]
    queries: Callable[[list[str]], Any]

    def embed_documents(self, texts: list[str]) -> Vectors:
        """Return one row per text. Raises `RequestError` when the rows are no finite numbers, or not as many."""
        return _checked(self.documents(texts), len(texts))

    def embed_query(self, text: str) -> Vectors:
        """Return one row. Raises as `embed_documents`."""
        return _checked(self.queries([text]), 1)


def as_embedder(embeddings: Any) -> Embedder:
    """Return LangChain ``Embeddings``, a LlamaIndex ``BaseEmbedding`` or a callable ``list[str] -> rows`` in one form.

    Raises:
        RequestTypeError: it is none of these.
    """
    if _has(embeddings, "embed_documents", "embed_query"):
        return Embedder(embeddings.embed_documents, lambda texts: [embeddings.embed_query(text) for text in texts])
    if _has(embeddings, "get_text_embedding_batch", "get_query_embedding"):
        return Embedder(
            embeddings.get_text_embedding_batch, lambda texts: [embeddings.get_query_embedding(text) for text in texts]
        )
    if callable(embeddings):
        return Embedder(embeddings, embeddings)
    raise RequestTypeError(
        f"embeddings is a {type(embeddings).__name__}; give a callable from a list of texts to rows of numbers, a "
        "LangChain Embeddings or a LlamaIndex BaseEmbedding"
    )


def _has(value: Any, *names: str) -> bool:
    return all(callable(getattr(value, name, None)) for name in names)


def unit_rows(rows: npt.NDArray[Any]) -> Vectors:
    """Return rows scaled to length 1; those of length 0 stay as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _checked(rows: Any, count: int) -> Vectors:
    try:
        vectors = np.ascontiguousarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"the embeddings of {count} texts are no rows of equally many numbers ({type(error).__name__}); "
            "return a list of lists or an array"
        ) from None  # its words may hold what was embedded
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise RequestError(
            f"the embeddings of {count} texts have the shape {vectors.shape}; it must be ({count}, dimensions)"
        )
    if not np.isfinite(vectors).all():
        raise RequestError("the embeddings hold NaN or infinite numbers; every number must be finite")
    return vectors
