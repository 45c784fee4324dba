"""A vLLM server with prefix caching, cached-token reports and cache events, as a context manager."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devtools.vllm.environment import Environment
from devtools.vllm.guard import STOP_SECONDS

HOST = "127.0.0.1"
START_SECONDS = 300.0
REQUEST_SECONDS = 120.0
_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait spinning make each other several times slower on a busy machine
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # gives /reset_prefix_cache
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
# No proxy, whatever the environment says: the server is on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerStartError(RuntimeError):
    """The server did not come up; the message holds the end of its log."""


class VLLMServer:
    """Starts on entry, ends on exit, whatever happens in between; nothing of it outlives this process.

    Ports and endpoints stay the same when it is stopped and started again.

    Attributes:
        model: The model's name in requests.
        block_size: Tokens in a KV block.
        base_url: For OpenAI clients, ending in ``/v1``.
        events_endpoint: Where the server publishes its cache events (ZMQ PUB, bound by the server).
        replay_endpoint: Where it repeats them (ZMQ ROUTER, bound by the server).
    """

    model = "smollm2"
    block_size = 32

    def __init__(self, environment: Environment, *, blocks: int | None = None, arguments: Sequence[str] = ()) -> None:
        """Prepare a server whose cache holds ``blocks`` KV blocks (None: 1 GiB of them); ``arguments`` come last."""
        self._environment = environment
        self._arguments = [*([f"--num-gpu-blocks-override={blocks}"] if blocks else []), *arguments]
        self._guard: subprocess.Popen[bytes] | None = None
        # An address of ZMQ's ipc:// may have about 100 characters, which TMPDIR alone can exceed.
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-", dir="/tmp")
        self.events_endpoint = f"ipc://{self._folder.name}/events"
        self.replay_endpoint = f"ipc://{self._folder.name}/replay"
        self._log = Path(self._folder.name, "server.log")
        self._port = _free_port()
        self.base_url = f"http://{HOST}:{self._port}/v1"

    def __enter__(self) -> "VLLMServer":
        """Start. Raises `ServerStartError`."""
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the server and remove its files."""
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        """Start, and wait until it answers: after a `stop` with an empty cache, and with events that count from 0.

        Raises:
            ServerStartError: it ended while starting, or took too long.
        """
        guard = Path(__file__).with_name("guard.py")
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, str(guard), *self._command()],
                env={**os.environ, **_SETTINGS},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at the terminal is for the parent, which then ends the server
            )
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._guard.poll() is not None:
                raise ServerStartError(f"vLLM has ended while starting; its log ends with:\n{self.log_end()}")
            if time.monotonic() > end:
                raise ServerStartError(f"vLLM is not up after {START_SECONDS:.0f} s; its log:\n{self.log_end()}")
            time.sleep(0.5)

    def stop(self) -> None:
        """End all its processes; a second call does nothing."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(2 * STOP_SECONDS)
        self._guard = None

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send JSON to ``path`` (from the root, as ``/tokenize``) and return the answer's JSON."""
        request = urllib.request.Request(
            f"http://{HOST}:{self._port}{path}",
            data=json.dumps(body or {}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _OPENER.open(request, timeout=REQUEST_SECONDS) as answer:
            return json.load(answer)

    def log_end(self, lines: int = 40) -> str:
        """Return the last lines that the server has written."""
        written = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        return "\n".join(written.splitlines()[-lines:])

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"http://{HOST}:{self._port}/health", timeout=5):
                return True
        except OSError:  # also what urllib raises for a refused connection and for a status of failure
            return False

    def _command(self) -> list[str]:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.events_endpoint,
            "replay_endpoint": self.replay_endpoint,
            "topic": "kv",
        }
        return [
            *(str(self._environment.python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--host", HOST, "--port", str(self._port)),
            *("--model", str(self._environment.model), "--served-model-name", self.model),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "8192"),
            *("--max-num-seqs", "4", "--max-num-batched-tokens", "4096", "--block-size", str(self.block_size)),
            *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--kv-events-config", json.dumps(events)),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *self._arguments,
        ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
