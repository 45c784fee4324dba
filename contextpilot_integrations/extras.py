"""Optional packages: loaded when first needed; an absent one is an error that says what to install."""

import importlib
from types import ModuleType

from contextpilot_core import MissingExtraError


def load(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` of this distribution brings.

    Raises:
        MissingExtraError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f'the package {error.name!r} is not installed; run: pip install "contextpilot-rag[{extra}]"',
            name=error.name,
        ) from error
