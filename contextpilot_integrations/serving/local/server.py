"""llama.cpp's own HTTP server, run inside this process or inside a child process that cannot outlive it.

The child is ``python -m`` of this package (`serve_parent`): each line on its standard input starts the server (again),
with the settings that the line holds; one line of JSON answers, `{"port": N}` or `{"error": "..."}`. The end of the
input, which also comes when the parent is killed, ends the child.
"""

import http.client
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from types import ModuleType
from typing import Any

from contextpilot_core import ConfigError, ContextPilotError
from contextpilot_integrations import extras

HOST = "127.0.0.1"
START_SECONDS = 120.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the server is started with. ``port`` 0: a free one; ``context_size``: tokens per slot."""

    model: str
    name: str
    port: int
    slots: int
    context_size: int
    threads: int
    cache_ram_mib: int


class InProcessServer:
    """The server's threads live in this process, and end with it."""

    def __init__(self, settings: Settings) -> None:
        """Start. Raises `MissingExtraError`, `ConfigError`."""
        self._server: Any = _start(settings)
        self.port = _port(self._server)
        self._settings = replace(settings, port=self.port)

    def restart(self) -> None:
        """Stop, and start again on the same port with empty caches."""
        self.close()
        self._server = _start(self._settings)

    def close(self) -> None:
        """Stop; a second call does nothing."""
        self._server = None  # its destructor stops the server and joins its threads


class ChildServer:
    """The server lives in a child process, which watches a pipe that closes when this process ends in any way."""

    def __init__(self, settings: Settings) -> None:
        """Start. Raises `ConfigError`."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", __package__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C at the terminal is for the parent, which then closes the child
        )
        self._settings = settings
        try:
            self.port = self._start()
        except BaseException:
            self.close()
            raise
        self._settings = replace(settings, port=self.port)

    def restart(self) -> None:
        """Stop, and start again on the same port with empty caches."""
        self._start()

    def close(self) -> None:
        """End the child and wait for it; a second call does nothing."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it has ended before
                    pipe.close()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _start(self) -> int:
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(asdict(self._settings)) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": "llama.cpp's process has ended; make a new LocalEngine"}
        if "error" in answer:
            raise ConfigError(answer["error"])
        return int(answer["port"])


def _start(settings: Settings) -> Any:
    xllamacpp = extras.load("xllamacpp", extra="local")
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, settings))
    except RuntimeError as error:
        raise ConfigError(
            f"llama.cpp cannot serve {settings.model} on port {settings.port} with slots={settings.slots}, "
            f"context_size={settings.context_size}: the file must be a whole GGUF model, the port free, the caches "
            "must fit into memory; give another file, or fewer slots or tokens"
        ) from error
    _wait_until_it_works(server)
    return server


def _parameters(xllamacpp: ModuleType, settings: Settings) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings.model
    parameters.model_alias = {settings.name}
    parameters.hostnames = [HOST]
    parameters.port = settings.port
    parameters.n_parallel = settings.slots
    parameters.n_ctx = settings.context_size * settings.slots
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = settings.threads
    parameters.cache_ram_mib = settings.cache_ram_mib
    parameters.sampling.temp = 0.0  # answers are the same every time, unless a request asks for another temperature
    parameters.sampling.seed = 0
    parameters.verbosity = 0  # llama.cpp writes to standard error; nothing but its failures is of interest
    parameters.ui = False
    parameters.endpoint_slots = True  # _wait_until_it_works asks there
    parameters.cors_origins = "localhost"  # no web page of another site may use the model
    parameters.cors_origins_explicit = True
    parameters.sse_ping_interval = 1  # seconds; also how long stopping waits for a stream that is being answered
    return parameters


def _wait_until_it_works(server: Any) -> None:
    """Ask once through the server's task queue: a server that is stopped before its queue runs never ends."""
    connection = http.client.HTTPConnection(HOST, _port(server), timeout=START_SECONDS)
    try:
        connection.request("GET", "/slots")
        connection.getresponse().read()
    finally:
        connection.close()


def _port(server: Any) -> int:
    return int(server.listening_address.rsplit(":", 1)[1])


def serve_parent() -> None:
    """Be the child: serve whoever holds the other ends of standard input and output, until they close."""
    server: InProcessServer | None = None
    for line in sys.stdin:
        if server is not None:
            server.close()
        try:
            server = InProcessServer(Settings(**json.loads(line)))
            answer: dict[str, object] = {"port": server.port}
        except ContextPilotError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
