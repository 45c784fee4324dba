"""Plan requests of real traces with the packages of the folder that this is started in, one trace per line of input.

Each line names a trace and how many requests to plan; one line of JSON answers with the CPU seconds of ``engine.plan``
and its messages, those of the whole conversations where the trace has them.
"""

import gzip
import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from contextpilot_core import ReuseEngine

DATA = Path(os.environ["CONTEXTPILOT_DATA"])
TOP_K = 15


@cache
def texts(dataset: str) -> dict[str, str]:
    """Return the documents of a corpus."""
    with gzip.open(DATA / f"{dataset}.corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {line["id"]: line["text"] for line in map(json.loads, lines) if line.get("text")}


@cache
def turns(trace: str) -> list[tuple[int, list[str]]]:
    """Return (conversation, documents) of every request, conversations turn by turn; -1 for a single request."""
    known = texts({"mtrag_full": "mtrag"}.get(trace.split(".")[0], trace.split(".")[0]))
    with gzip.open(DATA / f"{trace}.jsonl.gz", "rt", encoding="utf-8") as lines:
        items = [json.loads(line) for line in lines]
    found = []
    for number, item in enumerate(items):
        for turn in item.get("turns", [item]):
            documents = [known[name] for name in dict.fromkeys(turn["doc_ids"][:TOP_K]) if name in known]
            found.append((number if "turns" in item else -1, documents))
    return [(number, documents) for number, documents in found if documents]


def seconds(trace: str, requests: int) -> float:
    """Return the CPU seconds of planning the first ``requests``."""
    engine, histories, given = ReuseEngine(), dict[int, list[Any]](), turns(trace)[:requests]
    started = time.process_time()  # once: on some machines, asking takes longer than planning
    for number, documents in given:
        history = histories.get(number, [])
        messages = engine.plan(documents, query="What does it say?", messages=history).messages
        if number >= 0:
            histories[number] = [*messages, {"role": "assistant", "content": "It says so."}]
    return time.process_time() - started


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        trace, requests = line.split()
        sys.stdout.write(json.dumps(seconds(trace, int(requests))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
