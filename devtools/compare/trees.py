"""A state of the project as a folder of its own."""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def tree_of(revision: str) -> Iterator[Path]:
    """Yield a folder that holds the project as it was at ``revision``; gone afterwards."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
        yield Path(folder)


def worker(module: str, tree: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a module of this folder as a program that imports the packages of ``tree``; it talks by lines."""
    script = Path(__file__).with_name(f"{module}.py")
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
