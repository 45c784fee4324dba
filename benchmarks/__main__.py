"""``make bench``: measure, write ``results/*.json``, and make the tables and pictures of both READMEs from them."""

import argparse
import json
import os
import pkgutil
import platform
from pathlib import Path

from benchmarks import plots, tables

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PARTS = {
    "reuse": "benchmarks.reuse:measure",
    "peer": "benchmarks.peer_reuse:measure",
    "conversations": "benchmarks.conversations:measure",
    "overhead": "benchmarks.overhead:measure",
    "scaling": "benchmarks.scaling:measure",
    "peer_scaling": "benchmarks.peer_scaling:measure",
    "peer_latency": "benchmarks.peer_latency:measure",
    "demo": "benchmarks.demo:measure",
    "vllm": "benchmarks.engines:measure_vllm",
    "llama_cpp": "benchmarks.engines:measure_llama_cpp",
    "quality": "benchmarks.quality:measure",
    "plain": "benchmarks.plain:measure",
    "reliability": "benchmarks.reliability:measure",
}
"""part, and name of its results -> what measures it"""
LONG = ("vllm", "llama_cpp", "quality", "plain", "reliability")


def main() -> None:
    """Run the named parts, or all but the long ones; then tables and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", type=_part, default=[part for part in PARTS if part not in LONG])
    for part in parser.parse_args().parts:
        if part != "tables":
            print(f"measuring {part} ...", flush=True)
            figures = pkgutil.resolve_name(PARTS[part])()  # only what is asked for needs its packages
            machine = {"python": platform.python_version(), "cores": os.cpu_count()}
            text = json.dumps({"machine": machine, **figures}, indent=1)
            (RESULTS / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    results = tables.load(RESULTS)
    for page in (HERE / "README.md", HERE.parent / "README.md"):
        tables.fill(page, results)
    plots.draw(results, HERE / "plots")


def _part(name: str) -> str:
    """Return a known part; ``choices`` would refuse the default, which is a list, before Python 3.12."""
    if name not in (*PARTS, "tables"):
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}, tables")
    return name


if __name__ == "__main__":
    main()
