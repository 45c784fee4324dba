"""BM25 over documents (rank-bm25), with ties by position."""

import re
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from contextpilot_core.checks import able, number
from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.documents import Hit, as_entries, check_search
from contextpilot_integrations.retrieval.folder import load_entries, save_entries
from contextpilot_integrations.retrieval.index import Index

Tokenize = Callable[[str], list[str]]


def words(text: str) -> list[str]:
    """Split a text into its lower-case words, numbers and identifiers."""
    return re.findall(r"\w+", text.lower())


class Bm25Index(Index):
    """Ranks documents by BM25 (Okapi); equal scores keep the order of the documents."""

    def __init__(
        self, documents: Iterable[Any], *, tokenize: Tokenize = words, k1: float = 1.5, b: float = 0.75
    ) -> None:
        """Index texts, `ContextBlock`, LangChain documents or LlamaIndex nodes.

        Args:
            documents: in the order that breaks ties.
            tokenize: text to terms, for documents and queries alike.
            k1: how soon more of a term stops to matter.
            b: how much the length of a document matters, 0 to 1.

        Raises:
            MissingExtraError: ``rank-bm25`` is not installed.
            RequestTypeError: a document of another type.
            ConfigError: another value breaks its rule.
        """
        able("tokenize", tokenize, ["__call__"], "a function from a text to its terms")
        number("k1", k1, "1.5 is usual", least=0, most=100)
        number("b", b, "0.75 is usual", least=0, most=1)
        self._entries = as_entries(documents)
        self._tokenize = tokenize
        self._options = {"k1": k1, "b": b}
        terms = [tokenize(entry.block.text) for entry in self._entries]
        bm25 = load("rank_bm25", extra="retrieval").BM25Okapi
        # The package divides by the number of documents and by their mean length.
        self._bm25 = bm25(terms, k1=k1, b=b) if any(terms) else None

    def search(self, query: str, k: int = 4) -> list[Hit]:
        """Return the ``k`` best documents, best first; fewer only when there are fewer.

        Raises:
            RequestError: ``k`` is below 1. RequestTypeError: ``query`` is no str.
        """
        check_search(query, k)
        count = len(self._entries)
        scores: list[float] = [0.0] * count
        if self._bm25 is not None:
            scores = self._bm25.get_scores(self._tokenize(query)).tolist()
        best = sorted(range(count), key=lambda position: (-scores[position], position))[:k]
        return [Hit(position=p, score=scores[p], block=self._entries[p].block) for p in best]

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the documents and the parameters to ``folder``; not the tokenizer, which is code.

        Raises:
            RequestTypeError: an id or metadata hold what JSON cannot.
        """
        save_entries(Path(folder), self._entries, kind="bm25", options=self._options, files={})

    @classmethod
    def load(cls, folder: str | PathLike[str], *, tokenize: Tokenize = words) -> "Bm25Index":
        """Read what `save` wrote; give the same ``tokenize`` again. Raises `RequestError` when it cannot be read."""
        entries, options = load_entries(Path(folder), kind="bm25")
        index = cls([entry.block for entry in entries], tokenize=tokenize, **options)
        index._entries = entries
        return index
