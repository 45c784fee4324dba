"""How an answer compares with the gold answers: exact match and token F1, as SQuAD defines them."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and English articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def exact_match(answer: str, gold: Sequence[str]) -> float:
    """Return 1.0 when the words of ``answer`` are those of one of the gold answers, else 0.0."""
    words = normalise(answer)
    return float(any(words == normalise(each) for each in gold))


def token_f1(answer: str, gold: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall over words, 0 to 1, for the gold answer that fits best."""
    return max(_f1(normalise(answer), normalise(each)) for each in gold)


def _f1(words: list[str], wanted: list[str]) -> float:
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


LEVEL = 0.95
RESAMPLES = 10_000
_PART = 500


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean of ``n`` paired differences of ``clusters`` clusters, and the ends of its confidence interval."""

    n: int
    clusters: int
    mean: float
    low: float
    high: float

    @property
    def largest_loss(self) -> float:
        """The largest mean loss that the interval still allows; 0 when it allows none."""
        return max(0.0, -self.low)


def paired_interval(differences: Sequence[float], clusters: Sequence[str]) -> Interval:
    """Return the percentile bootstrap interval of the mean (`LEVEL`; `RESAMPLES` seeded resamples of the clusters).

    Questions that share a source or a conversation are not independent of each other: those of one cluster are drawn
    together. ``clusters`` names that of each difference. The result does not depend on the order of the questions.
    ``differences`` must not be empty.
    """
    values = np.asarray(differences, dtype=np.float64)
    ascending = np.argsort(values, kind="stable")
    values, names = values[ascending], np.asarray(clusters)[ascending]
    _, member = np.unique(names, return_inverse=True)
    sums, sizes = np.bincount(member, weights=values), np.bincount(member)
    order = np.lexsort((sizes, sums))
    sums, sizes = sums[order], sizes[order]
    draw = np.random.default_rng(0)
    means = []
    for _ in range(RESAMPLES // _PART):  # in parts, as all resamples at once would take gigabytes for a large file
        drawn = draw.integers(0, len(sums), (_PART, len(sums)))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(n=len(values), clusters=len(sums), mean=float(values.mean()), low=float(low), high=float(high))
