"""Helpers for ragged data."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.clustering.arrays import chunk_end, ranges


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 6))))
def test_ranges_concatenates_runs(runs: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in runs], dtype=np.int64)
    lengths = np.array([length for _, length in runs], dtype=np.int64)
    expected = [number for start, length in runs for number in range(start, start + length)]
    assert ranges(starts, lengths).tolist() == expected


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 20))
def test_chunks_cover_everything_within_the_limit(costs: list[int], limit: int) -> None:
    cumulative = np.concatenate([[0], np.cumsum(costs)])
    start = 0
    while start < len(costs):
        end = chunk_end(cumulative, start, limit)
        assert end > start
        assert end == start + 1 or sum(costs[start:end]) <= limit
        assert end == len(costs) or sum(costs[start : end + 1]) > limit
        start = end
    assert start == len(costs)
