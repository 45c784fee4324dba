"""Measuring again gives the committed figures of reuse, to the last digit."""

import json
from pathlib import Path

import pytest

from benchmarks import peer
from tests.conftest import absent

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TRACES = ("hotpotqa.trace.dense", "multihoprag_official_sample.trace.llm_embedder", "qasper.trace.bm25")
"""The small ones: each takes seconds."""


def committed(part):
    return json.loads((RESULTS / f"{part}.json").read_text("utf-8"))["traces"]


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_measured_again_gives_the_committed_figures(name, data_dir):
    from benchmarks.reuse import _trace

    assert json.loads(json.dumps(_trace(name))) == committed("reuse")[name]


def test_conversations_measured_again_give_the_committed_figures(data_dir):
    if not peer.is_prepared():
        absent(f"there is no environment with contextpilot {peer.VERSION}; run: python -m benchmarks.peer")
    from benchmarks.conversations import _arms

    name = "mtrag.conversations.bm25_rewrite"
    assert _arms(name, 4) == committed("conversations")[name]["last two turns"]


def test_overhead_measured_again_gives_the_committed_figures(data_dir):
    from benchmarks.overhead import _trace

    name = "musique.trace.dense"
    found, expected = _trace(name), committed("overhead")[name]
    for time in ("plan_us_p50", "plan_us_p99"):
        assert found.pop(time) > 0
        del expected[time]
    assert found == expected
