"""Do one job with the public contextpilot package. Run by the interpreter that has it; of ours it has the cache only.

usage: peer_worker.py JOB.json RESULT.json

It is used as its README says: one `ContextPilot` instance, `optimize` for one request after the other, `optimize_batch`
for a batch or a window, `remove_requests` for what left the cache, `reorder` and then `deduplicate` for the turns of a
conversation. Documents are given by id or by text.
"""

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contextpilot

Contexts = list[list[str]]
_NUMBERED = re.compile(r"\[\d+\] (.*)")


def batch(contexts: Contexts) -> dict[str, Any]:
    """Reorder and schedule all contexts together; documents are ids, of one line each."""
    messages, schedule = _pilot().optimize_batch(contexts, [""] * len(contexts))
    parsed = [_parse(prompt) for prompt in messages]
    return {"sent": [[number, *entry] for number, entry in zip(schedule, parsed, strict=True)], "errors": []}


def windows(contexts: Contexts, size: int) -> dict[str, Any]:
    """Reorder and schedule every ``size`` contexts together, each time by a new instance (its stateless use)."""
    sent, errors = [], []
    for start in range(0, len(contexts), size):
        window = contexts[start : start + size]
        try:
            sent += [[start + number, *entry] for number, *entry in batch(window)["sent"]]
        except Exception as error:  # noqa: BLE001  # whatever it raises is a result
            errors += [[start + number, _name(error)] for number in range(len(window))]
            sent += [[start + number, context, ""] for number, context in enumerate(window)]
    return {"sent": sent, "errors": errors}


def stream(contexts: Contexts) -> dict[str, Any]:
    """Reorder one context after the other. One that raises is sent as it came, and the next one is tried."""
    pilot, sent, errors = _pilot(), [], []
    for number, context in enumerate(contexts):
        try:
            sent.append([number, *_parse(pilot.optimize(context, ""))])
        except Exception as error:  # noqa: BLE001  # as above
            errors.append([number, _name(error)])
            sent.append([number, context, ""])
    return {"sent": sent, "errors": errors}


def synced_stream(contexts: Contexts, weights: dict[str, int], capacity: int) -> dict[str, Any]:
    """`stream` beside a cache of ``capacity`` tokens, which tells the pilot what it lost to each request.

    ``reused`` are the tokens that the cache had, ``known`` the requests that the pilot knows in the end.
    """
    pilot, cache, sent, errors, reused = _pilot(), _Cache(weights, capacity), [], [], 0
    for number, context in enumerate(contexts):
        before = pilot.get_all_request_ids()
        documents, note, request = context, "", None
        try:
            documents, note = _parse(pilot.optimize(context, ""))
            (request,) = pilot.get_all_request_ids() - before
        except Exception as error:  # noqa: BLE001  # as above
            errors.append([number, _name(error)])
        sent.append([number, documents, note])
        matched, gone = cache.send(documents, request)
        reused += matched
        for each in gone:  # one at a time, as sets of names have no order that repeats
            pilot.remove_requests({each})
    return {"sent": sent, "errors": errors, "reused": reused, "known": len(pilot.get_all_request_ids())}


class _Cache:
    """`contextpilot_core.replay.simulated_cache`, which here also names the requests that leave it.

    A request leaves when the last document of its prompt does: so it is with the hook for SGLang.
    """

    def __init__(self, weights: dict[str, int], capacity: int) -> None:
        from contextpilot_core.cache.blocks import BlockTable  # not at the top: other jobs measure memory
        from contextpilot_core.cache.estimate import CacheView

        self._blocks, self._weights = BlockTable(), weights
        self._view = CacheView(self._blocks, capacity=capacity, max_requests=sys.maxsize)

    def send(self, documents: list[str], request: str | None) -> tuple[int, list[str]]:
        """Take a prompt in: (the tokens of it that were cached, the requests that left)."""
        path = [self._blocks.intern(each.encode(), lambda each=each: self._weights[each]) for each in documents]
        matched = sum(self._blocks.tokens[block] for block in path[: self._view.cached_blocks(path)])
        gone = self._view.admit(path, request)
        self._blocks.release(path)
        return matched, gone


def turns(conversations: list[Contexts]) -> list[list[dict[str, list[str]]]]:
    """Reorder the first turn of every conversation, deduplicate the later ones; turns of all are interleaved.

    Returns, per conversation and turn, the documents to send, and what to say of them and in place of the others.
    """
    pilot = _pilot()
    result: list[list[dict[str, list[str]]]] = [[] for _ in conversations]
    for turn in range(max(map(len, conversations))):
        for number, contexts in enumerate(conversations):
            if turn < len(contexts):
                result[number].append(_turn(pilot, contexts[turn], turn == 0, f"conversation {number}"))
    return result


def _turn(pilot: Any, context: list[str], first: bool, name: str) -> dict[str, list[str]]:
    if first:
        documents, note = _parse(pilot.optimize(context, "", conversation_id=name))
        return {"documents": documents, "notes": [note]}
    (answer,) = pilot.deduplicate([context], conversation_id=name)
    return {"documents": answer["new_docs"], "notes": answer["reference_hints"]}


def build(contexts: Contexts, memory_gb: int) -> dict[str, Any]:
    """Time a batch: CPU seconds with those of its child processes, and peak memory of this process.

    What needs more than ``memory_gb`` (of addresses, per process) is an error, and tells nothing but that.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_gb * 10**9,) * 2)
    pilot = _pilot()
    started, before = time.perf_counter(), _cpu_seconds()
    try:
        reordered, _ = pilot.reorder(contexts)
    except MemoryError:
        return {"error": "MemoryError"}
    assert len(reordered) == len(contexts)
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": _cpu_seconds() - before,
        "peak_rss_mb": _peak_mb(),
    }


def latency(contexts: Contexts, checkpoints: list[int], around: int, cpu_seconds: int) -> dict[str, Any]:
    """Time ``around`` requests after every checkpoint of live contexts, in CPU microseconds.

    Stops after ``cpu_seconds``, or when a request raises.
    """
    pilot, times = _pilot(), []
    error = None
    for context in contexts[: checkpoints[-1] + around]:
        before = time.process_time()
        try:
            pilot.reorder(context)
        except Exception as raised:  # noqa: BLE001  # as above
            error = _name(raised)
            break
        times.append((time.process_time() - before) * 1e6)
        if time.process_time() > cpu_seconds:
            break
    reached = {str(live): times[live : live + around] for live in checkpoints if len(times) >= live + around}
    return {"times_us": reached, "planned": len(times), "error": error}


def _pilot() -> Any:
    return contextpilot.ContextPilot(use_gpu=False)


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _parse(prompt: list[dict[str, str]]) -> tuple[list[str], str]:
    """Return the documents of a prompt in order, and its note on their importance."""
    text = prompt[0]["content"]
    documents, note = text.split("<documents>\n", 1)[1].split("\n</documents>\n\n", 1)
    found = [_NUMBERED.fullmatch(line) for line in documents.split("\n")]
    return [match[1] for match in found if match], note


def _peak_mb() -> float:
    """Of this program alone, as `benchmarks.scaling` measures it."""
    (line,) = (line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


JOBS: dict[str, Callable[..., Any]] = {
    "batch": batch,
    "windows": windows,
    "stream": stream,
    "synced_stream": synced_stream,
    "turns": turns,
    "build": build,
    "latency": latency,
}


def main() -> None:
    """Do the job."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(JOBS[job.pop("job")](**job)), encoding="utf-8")


if __name__ == "__main__":
    main()
