"""The public contextpilot 0.5.0, from its release: what it orders, what it raises, and that it repeats."""

import json
from pathlib import Path

import pytest

from benchmarks import peer
from tests.conftest import absent

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module", autouse=True)
def release():
    if not peer.is_prepared():
        absent(f"there is no environment with contextpilot {peer.VERSION}; run: python -m benchmarks.peer")


def test_a_batch_keeps_its_schedule():
    contexts = [["a", "b", "c"], ["x", "y"], ["c", "a"]]
    answer = peer.run("batch", contexts=contexts)
    assert answer["errors"] == []
    assert sorted(number for number, _, _ in answer["sent"]) == [0, 1, 2]
    for number, documents, note in answer["sent"]:
        assert sorted(documents) == sorted(contexts[number])
        assert note


def test_a_request_that_raises_is_sent_as_it_came_and_told():
    bad = [["nested"]]  # no document
    answer = peer.run("stream", contexts=[["a", "b"], bad, ["b", "a"]])
    assert answer["sent"][1] == [1, bad, ""]
    ((number, error),) = answer["errors"]
    assert number == 1
    assert error.startswith("TypeError")
    assert sorted(answer["sent"][2][1]) == ["a", "b"]


def test_evictions_reach_the_index():
    contexts = [["a", "b"], ["c", "d"], ["e", "a", "b"]]
    weights = dict.fromkeys("abcde", 10)
    roomy, tiny = (
        peer.run("synced_stream", contexts=contexts, weights=weights, capacity=capacity) for capacity in (1000, 20)
    )
    assert roomy["errors"] == tiny["errors"] == []
    assert roomy["sent"] == peer.run("stream", contexts=contexts)["sent"]
    assert (roomy["sent"][2][1], roomy["reused"], roomy["known"]) == (["a", "b", "e"], 20, 3)
    assert (tiny["sent"][2][1], tiny["reused"], tiny["known"]) == (["e", "a", "b"], 0, 1)


def test_a_window_is_a_batch_of_its_own():
    contexts = [["a", "b", "c"], ["x", "y"], ["c", "a"], ["y", "z"], ["a", "c"]]
    answer = peer.run("windows", contexts=contexts, size=2)
    assert answer["errors"] == []
    numbers = [number for number, _, _ in answer["sent"]]
    assert [set(numbers[:2]), set(numbers[2:4]), set(numbers[4:])] == [{0, 1}, {2, 3}, {4}]
    for start in (0, 2, 4):
        alone = peer.run("batch", contexts=contexts[start : start + 2])["sent"]
        assert answer["sent"][start : start + 2] == [[start + number, *entry] for number, *entry in alone]


def test_a_window_that_raises_is_sent_as_it_came():
    bad = [["nested"]]  # no document
    answer = peer.run("windows", contexts=[["a", "b"], ["b", "a"], bad, ["a"]], size=2)
    assert answer["sent"][2:] == [[2, bad, ""], [3, ["a"], ""]]
    assert [number for number, _ in answer["errors"]] == [2, 3]


def test_what_was_sent_once_becomes_a_hint_in_a_later_turn():
    (turns,) = peer.run("turns", conversations=[[["a", "b"], ["b", "c"]]])
    assert sorted(turns[0]["documents"]) == ["a", "b"]
    assert turns[1]["documents"] == ["c"]
    assert len(turns[1]["notes"]) == 1


def test_a_build_is_timed():
    answer = peer.run("build", contexts=[["a", "b"], ["b", "c"], ["a", "c"]], memory_gb=16)
    assert answer.keys() == {"seconds", "cpu_seconds", "peak_rss_mb"}
    assert min(answer.values()) > 0


def test_a_job_that_takes_too_long_is_given_up():
    assert peer.run("build", limit=0.1, contexts=[["a", "b"], ["b", "c"]], memory_gb=16) is None


@pytest.mark.parametrize("name", ["hotpotqa.trace.bm25", "qasper.trace.dense"])
def test_a_trace_measured_again_gives_the_committed_figures(name, data_dir):
    from benchmarks.peer_reuse import arms

    committed = json.loads((RESULTS / "peer.json").read_text("utf-8"))["traces"][name]
    assert json.loads(json.dumps(arms(name))) == committed
