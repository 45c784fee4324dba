"""Does it hold? Each section plays random traffic and counts what broke.

One section: ``python -m benchmarks.reliability isolation --runs 500``. The figures go into
``results/reliability.json``, where those of other sections stay.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.isolation import EngineWorld, WindowWorld, differences
from benchmarks.isolation_clients import ClientWorld, RouterWorld, routed_differences

RESULTS = Path(__file__).parent / "results" / "reliability.json"
RUNS = 10_000
PARTS_OF_RUNS: dict[str, tuple[float, Any, Callable[[int], Iterable[Any]]]] = {
    "engine": (0.6, EngineWorld, lambda seed: differences(EngineWorld, seed)),
    "window": (0.1, WindowWorld, lambda seed: differences(WindowWorld, seed)),
    "client": (0.15, ClientWorld, lambda seed: differences(ClientWorld, seed)),
    "router": (0.15, RouterWorld, routed_differences),
}
"""layer -> its share of the runs, its world, and what one tenant is told differently because of the other"""


def isolation(runs: int = RUNS) -> dict[str, Any]:
    """Play every program with both tenants and with each alone, and compare what each was told."""
    started, layers = time.perf_counter(), {}
    for layer, (share, world, compare) in PARTS_OF_RUNS.items():
        seeds = range(max(1, int(share * runs)))
        failed = [seed for seed in track(seeds, f"isolation: {layer}") if list(compare(seed))]
        steps = sum(len(world.program(seed)) for seed in seeds)
        layers[layer] = {"runs": len(seeds), "steps": steps, "differences": len(failed), "first": failed[:5]}
    return {"layers": layers, "seconds": round(time.perf_counter() - started, 1)}


SECTIONS: dict[str, Callable[..., dict[str, Any]]] = {"isolation": isolation}


def measure(sections: Iterable[str] = tuple(SECTIONS), **options: Any) -> dict[str, Any]:
    """Run sections; those that are not run stay as they were."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with _quiet():
        return {**known, **{name: SECTIONS[name](**options) for name in sections}}


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing below errors meanwhile: replicas that fail are part of it."""
    loggers = [logging.getLogger(name) for name in ("contextpilot_core", "contextpilot_integrations")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def main() -> None:
    """Run the named sections."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="how many programs are played (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the JSON file (%(default)s)")
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - set(SECTIONS):
        parser.error(f"unknown: {', '.join(unknown)}; choose of {', '.join(SECTIONS)}")
    figures = measure(chosen.sections or SECTIONS, runs=chosen.runs)
    chosen.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
