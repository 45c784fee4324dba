"""Run a server that cannot outlive its parent: ``guard.py COMMAND...``.

vLLM is a family of processes, and its children stay when its first process is killed. The guard puts the family into
one process group and ends it when the server ends, or when standard input ends: that comes when the parent closes the
pipe, and also when the parent is killed.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

STOP_SECONDS = 10.0


def main() -> int:
    """Return the server's exit status."""
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
    status = server.wait()
    _signal_family(server, signal.SIGKILL)
    return status


def _stop_with_input(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    _signal_family(server, signal.SIGTERM)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _signal_family(server, signal.SIGKILL)


def _signal_family(server: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, number)


if __name__ == "__main__":
    sys.exit(main())
