"""Latent semantic vectors: embeddings without a model, learned from the documents themselves (scikit-learn)."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from contextpilot_core import RequestError
from contextpilot_core.checks import whole_number
from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.embeddings import RowEmbeddings, Vectors, unit_rows


class LsaEmbeddings(RowEmbeddings):
    """TF-IDF reduced by a truncated SVD, rows of length 1.

    For tests, notebooks and first steps: it knows only words that the fitted texts hold. The last dimension is that of
    texts without a known word: alike among themselves, and not like any other. Has LangChain's method names too. The
    same texts and seed give the same vectors.
    """

    def __init__(self, dimensions: int = 128, *, seed: int = 0) -> None:
        """Set up; `fit` learns up to so many ``dimensions``, beside the last one.

        Raises:
            ConfigError: ``dimensions`` is no whole number of at least 1.
        """
        self._dimensions, self._seed = whole_number("dimensions", dimensions, "128 is usual"), seed
        self._model: Any = None

    @property
    def fitted(self) -> bool:
        """True once `fit` has learned."""
        return self._model is not None

    def fit(self, texts: Iterable[str]) -> "LsaEmbeddings":
        """Learn from texts and return itself; few texts or words give fewer dimensions.

        Raises:
            MissingExtraError: scikit-learn is not installed. RequestError: the texts hold no word.
        """
        text = load("sklearn.feature_extraction.text", extra="lsa")
        decomposition = load("sklearn.decomposition", extra="lsa")
        vectorizer = text.TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
        try:
            matrix = vectorizer.fit_transform(list(texts))
        except ValueError as error:
            raise RequestError("the texts to learn from hold no word; give texts with words") from error
        components = np.ones((1, 1))  # of a single word, which the decomposition refuses
        if matrix.shape[1] > 1:
            svd = decomposition.TruncatedSVD(min(self._dimensions, *matrix.shape), random_state=self._seed)
            with np.errstate(divide="ignore", invalid="ignore"):  # its share of the variance, which one text has not
                components = svd.fit(matrix).components_
        self._model = (vectorizer, components.T)
        return self

    def __call__(self, texts: list[str]) -> Vectors:
        """Return one row per text. Raises `RequestError` before `fit`."""
        if self._model is None:
            raise RequestError("LsaEmbeddings know no words yet; call fit(texts) first")
        vectorizer, components = self._model
        rows = unit_rows(np.asarray(vectorizer.transform(texts) @ components))
        # A row of zeros has no direction: stores that compare directions refuse it.
        return np.column_stack([rows, ~rows.any(axis=1)]).astype(np.float32)
