"""Measuring again gives the committed figures of reuse, to the last digit."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TRACES = ("hotpotqa.trace.dense", "multihoprag_official_sample.trace.llm_embedder", "qasper.trace.bm25")
"""The small ones: each takes seconds."""


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_measured_again_gives_the_committed_figures(name, data_dir):
    from benchmarks.reuse import _trace

    committed = json.loads((RESULTS / "reuse.json").read_text("utf-8"))["traces"][name]
    assert json.loads(json.dumps(_trace(name))) == committed
