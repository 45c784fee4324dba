"""The one door for files that a user names: it says in one line what is wrong with them.

No error holds a word of a file, nor do those behind it. ``error`` is the class that is raised, ``fix`` the end of its
message.
"""

import gzip
import json
import os
import stat
import zlib
from collections.abc import Iterator
from os import PathLike
from typing import Any, TextIO

from contextpilot_core.errors import ContextPilotError

_DEEPEST = 100
"""Lists and objects inside one another: what works on a value, here or in a library, may call itself as deeply."""

_UNREADABLE = (OSError, EOFError, ValueError, zlib.error)


def read_text(path: str | PathLike[str], *, fix: str, error: type[ContextPilotError], errors: str = "strict") -> str:
    """Return the text of a file in UTF-8, with a byte order mark or without; ``.gz`` is unpacked.

    ``errors``: what becomes of bytes that are no UTF-8, as in `open`.

    Raises:
        ContextPilotError: ``error``, when the file cannot be read; a device is not.
    """
    try:
        with _opened(path, errors) as file:
            return file.read()
    except _UNREADABLE as problem:
        raise error(f"{os.fspath(path)}: cannot be read ({_why(problem)}); {fix}") from None


def parse(text: str, where: str, *, fix: str, error: type[ContextPilotError]) -> Any:
    """Return the value of a JSON text; ``where`` names it.

    Raises:
        ContextPilotError: ``error``, when it is no JSON, or nested more than 100 deep.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        why = f"{problem.msg}, at character {problem.pos + 1}"
    except ValueError:
        why = "a number has too many digits"
    except RecursionError:
        why = "it is nested too deeply"
    else:
        if text.count("[") + text.count("{") <= _DEEPEST or _is_flat(value):
            return value
        why = "it is nested too deeply"
    raise error(f"{where}: is no JSON that can be read ({why}); {fix}")


def read_json_lines(
    path: str | PathLike[str], *, fix: str, error: type[ContextPilotError]
) -> Iterator[tuple[str, Any]]:
    """Yield the value of every line of a file that is not blank, after its place ("FILE, line 3").

    Raises:
        ContextPilotError: ``error``, as for `read_text` (it names the last line that came) and `parse`.
    """
    for where, line in _lines(path, fix=fix, error=error):
        yield where, parse(line, where, fix=fix, error=error)


def _lines(path: str | PathLike[str], *, fix: str, error: type[ContextPilotError]) -> Iterator[tuple[str, str]]:
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{os.fspath(path)}, line {number}", line.rstrip()
    except _UNREADABLE as problem:
        place = f"{os.fspath(path)}, behind line {number}" if number else os.fspath(path)
        raise error(f"{place}: cannot be read ({_why(problem)}); {fix}") from None


def _opened(path: str | PathLike[str], errors: str = "strict") -> TextIO:
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(0, "it is a device")  # which may never end
    if os.fspath(path).endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors)
    return open(path, encoding="utf-8-sig", errors=errors)


def _why(problem: Exception) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return "it is not in UTF-8"
    if isinstance(problem, FileNotFoundError):
        return "there is no such file"
    if isinstance(problem, (EOFError, zlib.error, gzip.BadGzipFile)):
        return "it is no whole gzip file"
    return getattr(problem, "strerror", None) or type(problem).__name__


def _is_flat(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [each for each in level if isinstance(each, (list, dict))]
        if not level:
            return True
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return False
