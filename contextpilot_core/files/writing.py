"""Files that hold what users asked and what was found: their owner alone may read them."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it, that only their owner may enter; one that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, in one step: it is the earlier one until it is whole.

    Raises:
        OSError: it cannot be written.
    """
    target = os.path.realpath(path)  # a link stays one
    handle, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(target))  # made with 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def append_private(path: Path) -> TextIO:
    """Open a file to append to it, in UTF-8; a new one is for its owner alone.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))
