"""How the public package is used: a stand-in for it shows what the worker makes of its answers."""

import importlib
import json
import sys
from types import ModuleType

import pytest


class Pilot:
    """Turns every context around; fails for a context that begins with "bad"."""

    def __init__(self, use_gpu):
        assert not use_gpu

    def optimize(self, documents, query, conversation_id=None):
        if documents[0] == "bad":
            raise RecursionError("too deep")
        lines = "\n".join(f"[{number}] {name}" for number, name in enumerate(reversed(documents), start=1))
        text = f"Answer.\n\n<documents>\n{lines}\n</documents>\n\nRead them: 2 > 1"
        return [{"role": "system", "content": text}, {"role": "user", "content": query}]

    def optimize_batch(self, contexts, queries):
        schedule = list(reversed(range(len(contexts))))
        return [self.optimize(contexts[number], queries[number]) for number in schedule], schedule

    def deduplicate(self, contexts, conversation_id):
        return [{"new_docs": context[1:], "reference_hints": [f"see {context[0]}"]} for context in contexts]


@pytest.fixture
def worker(monkeypatch):
    package = ModuleType("contextpilot")
    package.ContextPilot = Pilot
    monkeypatch.setitem(sys.modules, "contextpilot", package)
    monkeypatch.delitem(sys.modules, "benchmarks.peer_worker", raising=False)
    yield importlib.import_module("benchmarks.peer_worker")
    sys.modules.pop("benchmarks.peer_worker", None)


def test_a_batch_keeps_its_schedule(worker):
    note = "Read them: 2 > 1"
    assert worker.batch([["a", "b"], ["c"]]) == {"sent": [[1, ["c"], note], [0, ["b", "a"], note]], "errors": []}


def test_a_request_that_raises_is_sent_as_it_came_and_told(worker):
    answer = worker.stream([["a", "b"], ["bad", "b"], ["c", "d"]])
    assert [documents for _, documents, _ in answer["sent"]] == [["b", "a"], ["bad", "b"], ["d", "c"]]
    assert answer["errors"] == [[1, "RecursionError: too deep"]]


def test_later_turns_are_deduplicated(worker):
    (turns,) = worker.turns([[["a", "b"], ["b", "c"]]])
    assert turns == [
        {"documents": ["b", "a"], "notes": ["Read them: 2 > 1"]},
        {"documents": ["c"], "notes": ["see b"]},
    ]


def test_a_job_comes_from_a_file_and_goes_to_one(worker, tmp_path, monkeypatch):
    job, result = tmp_path / "job.json", tmp_path / "result.json"
    job.write_text(json.dumps({"job": "batch", "contexts": [["a"]]}))
    monkeypatch.setattr(sys, "argv", ["peer_worker.py", str(job), str(result)])
    worker.main()
    assert json.loads(result.read_text())["sent"][0][:2] == [0, ["a"]]
