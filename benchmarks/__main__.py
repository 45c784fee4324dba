"""``make bench``: measure, write ``results/*.json``, and make the tables and pictures of both READMEs from them."""

import argparse
import importlib
import json
import os
import platform
from pathlib import Path

from benchmarks import plots, tables

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PARTS = {
    "reuse": "benchmarks.reuse",
    "peer": "benchmarks.peer_reuse",
    "conversations": "benchmarks.conversations",
    "overhead": "benchmarks.overhead",
    "scaling": "benchmarks.scaling",
    "peer_scaling": "benchmarks.peer_scaling",
    "peer_latency": "benchmarks.peer_latency",
    "demo": "benchmarks.demo",
    "engines": "benchmarks.engines",
    "quality": "benchmarks.quality",
}
"""part, and name of its results -> module that measures it"""
USUAL = [part for part in PARTS if part not in ("engines", "quality")]


def main() -> None:
    """Run the named parts, or all but "engines" and "quality"; then tables and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "tables"], default=USUAL)
    for part in parser.parse_args().parts:
        if part != "tables":
            print(f"measuring {part} ...", flush=True)
            figures = importlib.import_module(PARTS[part]).measure()  # only what is asked for needs its packages
            machine = {"python": platform.python_version(), "cores": os.cpu_count()}
            text = json.dumps({"machine": machine, **figures}, indent=1)
            (RESULTS / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    results = tables.load(RESULTS)
    for page in (HERE / "README.md", HERE.parent / "README.md"):
        tables.fill(page, results)
    plots.draw(results, HERE / "plots")


if __name__ == "__main__":
    main()
