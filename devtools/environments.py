"""Virtual environments for what the project itself does not need: kept in the user's cache folder between runs."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Steps = Sequence[Sequence[str]]
"""Arguments of one call of pip after the other."""

_COMPLETE = "complete.json"


class EnvironmentSetupError(RuntimeError):
    """An environment cannot be made on this machine; the message says why and what to do."""


def cache_folder(name: str) -> Path:
    """Return where an environment is kept: below ``XDG_CACHE_HOME``, else below ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "contextpilot-rag" / name


def make_once(folder: Path, steps: Steps, make: Callable[[], None]) -> None:
    """Call ``make``, which makes ``folder``, unless it is complete and was made by these very steps.

    One that broke off is made again from nothing. Raises what ``make`` raises.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(folder.name + ".lock")):
        if not is_made(folder, steps):
            shutil.rmtree(folder, ignore_errors=True)
            make()
            (folder / _COMPLETE).write_text(_recipe(steps), encoding="utf-8")


def is_made(folder: Path, steps: Steps) -> bool:
    """Return whether `make_once` has nothing to do."""
    complete = folder / _COMPLETE
    return complete.is_file() and complete.read_text(encoding="utf-8") == _recipe(steps)


def make_venv(folder: Path, steps: Steps) -> Path:
    """Make a virtual environment by these steps of pip, and return its interpreter.

    Raises:
        EnvironmentSetupError: a step failed.
    """
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "venv", str(folder)])
    for step in steps:
        run([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *step])
    return python


def run(command: Sequence[str]) -> None:
    """Run one command of a set-up. Raises `EnvironmentSetupError`."""
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise EnvironmentSetupError(
            f"the set-up failed with exit status {error.returncode} at: {' '.join(command)}; "
            "its output is above; the next run begins again"
        ) from error


def _recipe(steps: Steps) -> str:
    return json.dumps({"python": sys.version, "steps": steps})


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One set-up at a time: a second one waits, and then finds the work done."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
