"""Eq. 1 as it is written, for one pair."""

from collections.abc import Sequence


def distance(a: Sequence[int], b: Sequence[int], alpha: float = 0.001) -> float:
    shared = set(a) & set(b)
    if not shared:
        return 1.0
    gaps = sum(abs(a.index(block) - b.index(block)) for block in shared)
    return 1 - len(shared) / max(len(a), len(b)) + alpha * gaps / len(shared)
