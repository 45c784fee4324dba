"""Paired differences and their bootstrap confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000
_PART = 500


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean of ``n`` paired differences, and the ends of its confidence interval."""

    n: int
    mean: float
    low: float
    high: float

    @property
    def largest_loss(self) -> float:
        """The largest mean loss that the interval still allows; 0 when it allows none."""
        return max(0.0, -self.low)


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the percentile bootstrap interval of the mean (`LEVEL`; `RESAMPLES` seeded resamples of the questions).

    It depends on the values alone, not on their order, and takes the questions as independent of each other: with
    several turns of the same conversations it is somewhat too narrow. ``differences`` must not be empty.
    """
    values = np.sort(np.asarray(differences, dtype=np.float64))
    draw = np.random.default_rng(0)
    # In parts, as all resamples at once would take gigabytes for a large file.
    means = [draw.choice(values, (_PART, len(values))).mean(axis=1) for _ in range(RESAMPLES // _PART)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(n=len(values), mean=float(values.mean()), low=float(low), high=float(high))
