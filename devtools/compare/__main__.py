"""Compare a commit with the working tree: ``python -m devtools.compare REVISION {paths,planning}``.

paths: files, lines, moves and classes on the way of a request. planning: CPU time of planning, both in turn.
"""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from devtools.compare.trees import ROOT, tree_of, worker

TRACES = {
    "qasper.trace.bm25": 175,
    "multihoprag.trace.bm25": 300,
    "narrativeqa.trace.dense": 200,
    "hotpotqa.trace.dense": 70,
    "locomo.conversations.bm25": 300,
    "mtrag_full.conversations.hybrid_rewrite": 200,
}


def paths(before: Path, now: Path) -> Table:
    """Return files, lines, and what each walk passes."""
    found = [json.loads(worker("paths", tree).communicate()[0]) for tree in (before, now)]
    table = Table("what", "before", "now", title="paths")
    for name in ("files", "lines"):
        table.add_row(name, *[f"{each[name]:,}" for each in found])
    for walk in found[0]["walks"]:
        rows = [each["walks"][walk] for each in found]
        table.add_section()
        table.add_row(f"{walk}: moves between files", *[str(row["files"]) for row in rows])
        table.add_row("  moves between rooms", *[str(row["rooms"]) for row in rows])
        table.add_row("  classes of ours made", *[f"{len(row['classes'])}: {' '.join(row['classes'])}" for row in rows])
    return table


def planning(before: Path, now: Path, rounds: int) -> Table:
    """Return CPU milliseconds per request, and the median of the ratios of rounds in which both plan in turn."""
    table = Table(
        "trace", "before, ms", "now, ms", "ratio", title=f"engine.plan and its messages, {rounds} rounds in turn"
    )
    workers = [worker("planning", tree) for tree in (before, now)]

    def ask(number: int, line: str) -> float:
        stdin, stdout = workers[number].stdin, workers[number].stdout
        assert stdin is not None and stdout is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        return float(json.loads(stdout.readline()))

    ratios: list[Any] = []
    for trace, requests in TRACES.items():
        line = f"{trace} {requests}"
        for number in (0, 1):
            ask(number, line)  # read the files, warm up
        spent = []
        for turn in range(rounds):
            order = (0, 1) if turn % 2 else (1, 0)
            took = {number: ask(number, line) for number in order}
            spent.append((took[0], took[1]))
        ratio = median([later / earlier for earlier, later in spent])
        ratios.append(ratio)
        times = [1000 * median(column) / requests for column in zip(*spent, strict=True)]
        table.add_row(trace, *[f"{time:.3f}" for time in times], f"{ratio:.2f}")
    table.add_row("median", "", "", f"{median(ratios):.2f}")
    for each in workers:
        each.communicate()
    return table


def main() -> None:
    """Read the command line, and print one table."""
    parser = argparse.ArgumentParser(prog="devtools.compare")
    parser.add_argument("revision")
    parser.add_argument("what", choices=["paths", "planning"])
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    with ExitStack() as stack:
        before = stack.enter_context(tree_of(asked.revision))
        table = paths(before, ROOT) if asked.what == "paths" else planning(before, ROOT, asked.rounds)
    Console().print(table)


if __name__ == "__main__":
    main()
