"""How an answer compares with the gold answers: exact match and token F1, as SQuAD defines them."""

import re
import string
from collections import Counter
from collections.abc import Sequence

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
