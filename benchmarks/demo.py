"""Run the demo with both question seeds, and keep its figures (``report.json`` without the answers)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SEEDS = (0, 1)


def measure() -> dict[str, Any]:
    """Run ``contextpilot-rag demo`` once per seed; about two minutes each on two idle cores."""
    return {"seeds": {str(seed): _run(seed) for seed in SEEDS}}


def _run(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        script = "from contextpilot_integrations.cli.main import main; main()"
        command = [sys.executable, "-c", script, "demo", "--seed", str(seed), "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, dict[str, dict[str, Any]]] = json.loads((Path(folder) / "report.json").read_text())
    return {
        job: {arm: {key: value for key, value in row.items() if key != "answers"} for arm, row in arms.items()}
        for job, arms in report.items()
    }
