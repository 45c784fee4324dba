"""The console script ``contextpilot-rag``: in a core-only install it says which extra it needs.

Everything heavy is imported inside `main`, so that Ctrl-C during imports ends like any other.
"""

import os
import sys
from typing import NoReturn, TextIO

_LONGEST = 2_000
_REFUSED, _INTERRUPTED = 2, 130


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 2 refused, with one line that says why; `gate` has a 1 of its own.

    130 after Ctrl-C. When nobody reads the output any more, it ends without a word.
    """
    status = _REFUSED
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever calls
            setattr(sys, name, open(os.devnull, "w"))
    try:
        status = _run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _INTERRUPTED
        _say("interrupted")
    except BrokenPipeError:
        _leave(sys.stdout)
    except OSError as error:  # what concerns a file of the user is refused where it is read
        status = _REFUSED
        _leave(sys.stdout)
        what = "the output" if error.filename is None else repr(error.filename)
        _say(f"{what} cannot be used ({type(error).__name__}: {error.strerror}); make room, or give the right to it")
    sys.exit(status)


def _run() -> int:
    from contextpilot_core import ContextPilotError
    from contextpilot_integrations import extras

    try:
        for module in ("typer", "rich"):
            extras.load(module, extra="cli")
        from contextpilot_integrations.cli.app import DISTRIBUTION, app

        app(prog_name=DISTRIBUTION)  # also as a module: completion works for this name
    except ContextPilotError as error:
        _say(str(error))
        return _REFUSED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else _REFUSED
    return 0


def _say(text: str) -> None:
    """Write one line, whatever names in it hold: neither a line break nor a command to the terminal."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    try:
        sys.stderr.write(f"contextpilot-rag: {line}\n")
        sys.stderr.flush()
    except OSError:
        _leave(sys.stderr)


def _leave(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: the interpreter would fail to write it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except OSError:
        pass  # it is no file of the system
    finally:
        os.close(nowhere)
