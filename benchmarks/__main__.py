"""``make bench``: measure, write ``results/*.json``, and fill the tables of both READMEs from them."""

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import demo, reuse, scaling, tables

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "reuse": reuse.measure,
    "scaling": scaling.measure,
    "demo": demo.measure,
}


def main() -> None:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "tables"], default=[*PARTS, "tables"])
    parts = parser.parse_args().parts
    for part in parts:
        if part != "tables":
            print(f"measuring {part} ...", flush=True)
            figures = PARTS[part]()
            machine = {"python": platform.python_version(), "cores": os.cpu_count()}
            text = json.dumps({"machine": machine, **figures}, indent=1)
            (RESULTS / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    for page in (HERE / "README.md", HERE.parent / "README.md"):
        tables.fill(page, RESULTS)


if __name__ == "__main__":
    main()
