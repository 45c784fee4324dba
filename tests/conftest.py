"""What tests may need and a machine may lack: each skips with the reason, or fails where everything is required."""

import importlib
import os
import socket
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from contextpilot_integrations.serving.local.model import PACKAGE


def absent(reason: str) -> NoReturn:
    """Skip the test; fail it when ``CONTEXTPILOT_REQUIRE_ALL=1`` says that nothing may be absent."""
    if os.environ.get("CONTEXTPILOT_REQUIRE_ALL") == "1":
        pytest.fail(f"CONTEXTPILOT_REQUIRE_ALL=1, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require(module: str) -> ModuleType:
    """Import a module that is not part of every installation."""
    try:
        return importlib.import_module(module)
    except ImportError:
        absent(f"{module} is not installed")


def require_local_model() -> None:
    """What `LocalEngine` needs: llama.cpp, and the packaged model, whose package is never imported."""
    require("xllamacpp")
    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        absent(f"{PACKAGE} is not installed")


@pytest.fixture
def ipv6() -> str:
    """The address of this machine in IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        absent("this machine has no IPv6")
    return "::1"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real retrieval traces."""
    folder = os.environ.get("CONTEXTPILOT_DATA")
    if not folder:
        absent("CONTEXTPILOT_DATA does not name the folder of the retrieval traces")
    return Path(folder)
