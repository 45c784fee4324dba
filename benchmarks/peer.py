"""The public ``contextpilot==0.5.0``: its release from PyPI, in an environment and a process of its own.

`run` gives a job of `peer_worker` to it. The environment is made once, in the user's cache folder;
``python -m benchmarks.peer`` does nothing else.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from devtools.environments import cache_folder, is_made, make_once, make_venv
from devtools.vllm import guard

VERSION = "0.5.0"
_STEPS = (("install", f"contextpilot=={VERSION}"),)
_WORKER = Path(__file__).with_name("peer_worker.py")
_ROOT = Path(__file__).parents[1]


def run(job: str, *, limit: float = 1800, **arguments: Any) -> Any:
    """Return what a job gives, or None when it is not done after ``limit`` seconds; nothing of it goes on running then.

    Raises:
        EnvironmentSetupError: the release cannot be installed.
        RuntimeError: the job failed; what it said is on standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder, "job.json"), Path(folder, "result.json")
        given.write_text(json.dumps({"job": job, **arguments}), encoding="utf-8")
        # The guard ends the job with its children when standard input closes, which also comes when we are killed.
        command = [sys.executable, guard.__file__, str(prepare()), str(_WORKER), str(given), str(result)]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}  # for the simulated cache
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
        if status:
            raise RuntimeError(f"contextpilot {VERSION}: job {job!r} failed; its error is above")
        return json.loads(result.read_text(encoding="utf-8"))


@cache
def prepare() -> Path:
    """Make the environment unless it is there, and return its interpreter. Raises `EnvironmentSetupError`."""
    folder = _folder()
    make_once(folder, _STEPS, lambda: _make(folder))
    return folder / "bin" / "python"


def is_prepared() -> bool:
    """Return whether the environment is there."""
    return is_made(_folder(), _STEPS)


def _folder() -> Path:
    return cache_folder(f"contextpilot-{VERSION}")


def _make(folder: Path) -> None:
    make_venv(folder, _STEPS)


if __name__ == "__main__":
    prepare()
