"""FAISS over documents: exact inner product, or HNSW, with ties by position."""

import hashlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from contextpilot_core import RequestError
from contextpilot_core.checks import one_of
from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.documents import Entry, Hit, as_entries, check_search
from contextpilot_integrations.retrieval.embeddings import Vectors, as_embedder, unit_rows
from contextpilot_integrations.retrieval.folder import load_entries, save_entries
from contextpilot_integrations.retrieval.index import Index
from contextpilot_integrations.retrieval.lsa import LsaEmbeddings

Kind = Literal["exact", "hnsw"]
FILE = "index.faiss"
NEIGHBOURS, BUILD_WIDTH, SEARCH_WIDTH = 32, 200, 64


class FaissIndex(Index):
    """Ranks documents by the inner product of embeddings; equal scores keep the order of the documents.

    The same documents and vectors always give the same index and the same answers: HNSW adds them one by one.
    """

    def __init__(
        self, documents: Iterable[Any], embeddings: Any, *, kind: Kind = "exact", normalize: bool = False
    ) -> None:
        """Embed and index texts, `ContextBlock`, LangChain documents or LlamaIndex nodes (their text alone).

        Args:
            documents: in the order that breaks ties.
            embeddings: a callable from a list of texts to rows of numbers, a LangChain ``Embeddings`` or a LlamaIndex
                ``BaseEmbedding``; `LsaEmbeddings` that were not fitted learn from these documents.
            kind: "exact" compares with every document; "hnsw" is approximate, and faster from some ten thousand on.
            normalize: scale vectors to length 1, so that scores are cosines.

        Raises:
            ConfigError: an unknown ``kind``. MissingExtraError: ``faiss-cpu`` is not installed.
            RequestTypeError, RequestError: documents or vectors that cannot be indexed.
        """
        self._prepare(as_entries(documents), embeddings, kind, normalize)
        texts = [entry.block.text for entry in self._entries]
        self._index: Any = None
        if texts:
            vectors = self._scaled(self._embedder.embed_documents(texts))
            self._index = self._new_index(vectors.shape[1])
            for start in range(0, len(vectors), 1 if kind == "hnsw" else len(vectors)):
                self._index.add(vectors[start : start + (1 if kind == "hnsw" else len(vectors))])

    def _prepare(self, entries: tuple[Entry, ...], embeddings: Any, kind: Kind, normalize: bool) -> None:
        one_of("kind", kind, get_args(Kind))
        self._faiss = load("faiss", extra="retrieval")
        self._entries, self._kind, self._normalize = entries, kind, normalize
        if isinstance(embeddings, LsaEmbeddings) and not embeddings.fitted and entries:
            embeddings.fit([entry.block.text for entry in entries])
        self._embedder = as_embedder(embeddings)

    def _new_index(self, dimensions: int) -> Any:
        if self._kind == "exact":
            return self._faiss.IndexFlatIP(dimensions)
        index = self._faiss.IndexHNSWFlat(dimensions, NEIGHBOURS, self._faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BUILD_WIDTH
        index.hnsw.efSearch = SEARCH_WIDTH
        return index

    @property
    def kind(self) -> Kind:
        """How it searches."""
        return self._kind

    def search(self, query: str, k: int = 4) -> list[Hit]:
        """Return the ``k`` best documents, best first; fewer only when there are fewer.

        Raises:
            RequestError: ``k`` is below 1, or the query's vector does not fit the index.
            RequestTypeError: ``query`` is no str.
        """
        check_search(query, k)
        if self._index is None:
            return []
        vector = self._scaled(self._embedder.embed_query(query))
        if vector.shape[1] != self._index.d:
            raise RequestError(
                f"the query's vector has {vector.shape[1]} dimensions, the index {self._index.d}; give the embeddings "
                "that the index was made with"
            )
        found = self._ranked(vector, min(k, len(self)))
        return [Hit(position=p, score=-score, block=self._entries[p].block) for score, p in found]

    def _ranked(self, vector: Vectors, k: int) -> list[tuple[float, int]]:
        """Return (negative score, position) of the best, ties by position, also among those that just miss the cut."""
        total = len(self)
        wanted = min(k + 1, total)
        while True:
            found = self._nearest(vector, wanted)
            if len(found) == total or (len(found) > k and found[k][0] > found[k - 1][0]):
                return found[:k]
            wanted = min(2 * wanted, total)

    def _nearest(self, vector: Vectors, count: int) -> list[tuple[float, int]]:
        parameters = None
        if self._kind == "hnsw":
            parameters = self._faiss.SearchParametersHNSW(efSearch=max(SEARCH_WIDTH, count))
        scores, positions = self._index.search(vector, count, params=parameters)
        if (positions < 0).any():  # the graph does not lead to enough of them: look at all
            scores, positions = self._faiss.downcast_index(self._index.storage).search(vector, count)
        return sorted(
            (-score, position) for score, position in zip(scores[0].tolist(), positions[0].tolist(), strict=True)
        )

    def _scaled(self, vectors: Vectors) -> Vectors:
        return unit_rows(vectors) if self._normalize else vectors

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the index (FAISS's format) and the documents (JSON) to ``folder``; not the embeddings.

        Raises:
            RequestTypeError: an id or metadata hold what JSON cannot.
        """
        options: dict[str, Any] = {"kind": self._kind, "normalize": self._normalize}
        files: dict[str, bytes] = {}
        if self._index is not None:
            files[FILE] = self._faiss.serialize_index(self._index).tobytes()
            options["sha256"] = hashlib.sha256(files[FILE]).hexdigest()
        save_entries(Path(folder), self._entries, kind="faiss", options=options, files=files)

    @classmethod
    def load(cls, folder: str | PathLike[str], embeddings: Any) -> "FaissIndex":
        """Read what `save` wrote; give the same ``embeddings`` again. Only open folders that you trust.

        Raises:
            RequestError: it cannot be read, or its files do not belong together.
        """
        path = Path(folder)
        entries, options = load_entries(path, kind="faiss")
        index = cls.__new__(cls)
        index._prepare(entries, embeddings, options.get("kind", "exact"), options.get("normalize") is True)
        index._index = None
        if entries:
            data = (path / FILE).read_bytes() if (path / FILE).is_file() else b""
            if hashlib.sha256(data).hexdigest() != options.get("sha256"):
                raise RequestError(f"{path / FILE} is absent, damaged or of another index; save the index again")
            index._index = index._faiss.deserialize_index(np.frombuffer(data, np.uint8))
        return index
