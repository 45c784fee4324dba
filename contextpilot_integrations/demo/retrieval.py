"""BM25 search over chunks: the demo's retriever, with nothing tuned to its questions."""

import re
from collections.abc import Sequence

from contextpilot_integrations.demo.documents import Chunk
from contextpilot_integrations.extras import load

STOP_WORDS = frozenset(
    "a an and are as at be by can do does for from has have how i if in into is it its me my not of on or so than that "
    "the their then there these this to was what when where which who why will with you your".split()
)


def terms(text: str) -> list[str]:
    """Split a text into the lower-case words and identifiers that the search works with."""
    return [word for word in re.findall(r"\w+", text.lower()) if word not in STOP_WORDS]


class Retriever:
    """Ranks chunks for a question; equal scores keep the order of the chunks. Raises `MissingExtraError`."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        """Index ``chunks``."""
        self._chunks = tuple(chunks)
        self._bm25 = load("rank_bm25", extra="demo").BM25Okapi([terms(chunk.text) for chunk in chunks])

    def search(self, question: str, k: int) -> list[Chunk]:
        """Return the ``k`` best chunks for ``question``, best first (fewer when there are fewer chunks)."""
        scores = self._bm25.get_scores(terms(question)).tolist()
        ranked = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
        return [self._chunks[number] for number in ranked[:k]]
