"""A language model without a server to set up: llama.cpp, embedded, behind an OpenAI-compatible endpoint."""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any

from contextpilot_core import ConfigError
from contextpilot_core.checks import whole_number
from contextpilot_integrations import extras
from contextpilot_integrations.serving.local.model import model_file
from contextpilot_integrations.serving.local.server import HOST, ChildServer, InProcessServer, Settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

PACKAGED_NAME = "smollm2"


class LocalEngine(AbstractContextManager["LocalEngine"]):
    """A llama.cpp server on 127.0.0.1 and a free port, started here and gone at exit.

        with LocalEngine() as engine:
            client = ContextPilotClient(engine.client(), model=engine.model)

    Its prefix cache is the longest common prefix per slot, and whole prompts in host memory. Every answer reports
    its cached tokens. The temperature is 0 unless a request asks for another; what the cache holds can still
    move a likelihood a little.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        process: bool = False,
        *,
        slots: int = 2,
        context_size: int = 8192,
        threads: int | None = None,
        cache_ram_mib: int = 2048,
    ) -> None:
        """Start the server; returns when it answers.

        Args:
            model: path of a GGUF file; None is the packaged SmolLM2-135M-Instruct.
            process: True runs it in a child process, which ends with this one even when that is killed.
            slots: requests answered at the same time, each with a KV cache of its own.
            context_size: tokens per slot.
            threads: CPU threads; None uses all that this process may run on. Fewer are faster on a busy machine.
            cache_ram_mib: host memory in MiB for prompts that left their slot; 0 is none.

        Raises:
            MissingExtraError: ``xllamacpp`` is not installed.
            MissingModelError: the model is absent, damaged or no GGUF file.
            ConfigError: a value breaks its rule, or llama.cpp cannot start with these values.
        """
        threads = _usable_cpus() if threads is None else threads
        whole_number("slots", slots, "2 is usual")
        whole_number("context_size", context_size, "give tokens per slot, 8192 is usual")
        whole_number("threads", threads, "give CPU threads, or None for all")
        whole_number("cache_ram_mib", cache_ram_mib, "give MiB, 0 is none", least=0)
        extras.load("xllamacpp", extra="local")
        path = model_file(model)
        self.model = PACKAGED_NAME if model is None else path.stem
        settings = Settings(
            model=str(path),
            name=self.model,
            port=0,
            slots=slots,
            context_size=context_size,
            threads=threads,
            cache_ram_mib=cache_ram_mib,
        )
        self._lock = threading.Lock()
        self._server = ChildServer(settings) if process else InProcessServer(settings)
        self.base_url = f"http://{HOST}:{self._server.port}/v1"
        self._stop = weakref.finalize(self, self._server.close)  # runs at exit too

    def client(self, **options: Any) -> "OpenAI":
        """Return an ``openai.OpenAI`` for this server; ``options`` go to it. Raises `MissingExtraError`."""
        openai = extras.load("openai", extra="client")
        client: OpenAI = openai.OpenAI(**self._connection(openai.DefaultHttpxClient, options))
        return client

    def async_client(self, **options: Any) -> "AsyncOpenAI":
        """Return an ``openai.AsyncOpenAI`` for this server; ``options`` go to it. Raises `MissingExtraError`."""
        openai = extras.load("openai", extra="client")
        client: AsyncOpenAI = openai.AsyncOpenAI(**self._connection(openai.DefaultAsyncHttpxClient, options))
        return client

    def clear(self) -> None:
        """Empty every cache: the server starts again on its port (about half a second; answers under way break off).

        llama.cpp can erase a slot, but not its prompts in host memory.

        Raises:
            ConfigError: it was closed, or cannot start again.
        """
        with self._lock:
            if not self._stop.alive:
                raise ConfigError("this LocalEngine is closed; make a new one")
            self._server.restart()

    def close(self) -> None:
        """Stop the server and wait for its end; a second call does nothing."""
        with self._lock:
            self._stop()

    def __exit__(self, *error: object) -> None:
        """Stop the server."""
        self.close()

    def _connection(self, http_client: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
        if "http_client" not in options:
            options = {**options, "http_client": http_client(trust_env=False)}  # no proxy stands before 127.0.0.1
        return {"base_url": self.base_url, "api_key": "local", **options}


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
