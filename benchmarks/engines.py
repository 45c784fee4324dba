"""``make bench-engines``: the same requests in three ways before real engines, vLLM on CPU and llama.cpp.

The arms of a workload take turns in every round, each on an emptied cache, so that a machine that slows down slows
them all. Cached tokens are those that the engine reported.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import openai
from rich.progress import Progress

from benchmarks.workloads import ARMS, Prompt, workloads
from contextpilot_integrations.demo.endpoint import Endpoint
from contextpilot_integrations.serving.endpoint import GREETING
from contextpilot_integrations.serving.local.engine import LocalEngine
from devtools.vllm.environment import default_folder, prepare
from devtools.vllm.server import VLLMServer

OPTIONS = {"max_tokens": 4, "temperature": 0}


@contextmanager
def llama_cpp() -> Iterator[tuple[Endpoint, int]]:
    """Run llama.cpp in a child process, one request at a time. It counts single tokens, not KV blocks.

    One thread: two wait for each other, which is slow as soon as anything else runs.
    """
    with LocalEngine(process=True, slots=1, threads=1) as engine, engine.client() as client:
        yield Endpoint(client=client, model=engine.model, where="llama.cpp", clear=engine.clear, options=OPTIONS), 1


@contextmanager
def vllm() -> Iterator[tuple[Endpoint, int]]:
    """Run vLLM, with an environment of its own (see `devtools.vllm`)."""
    with VLLMServer(prepare(default_folder())) as server:
        http = openai.DefaultHttpxClient(trust_env=False)
        with openai.OpenAI(base_url=server.base_url, api_key="-", http_client=http) as client:

            def clear() -> None:
                server.post("/reset_prefix_cache")

            endpoint = Endpoint(client=client, model=server.model, where="vLLM", clear=clear, options=OPTIONS)
            yield endpoint, server.block_size


def measure_vllm(rounds: int = 7) -> dict[str, Any]:
    """Measure vLLM; about ten minutes on two idle cores, and its set-up the first time."""
    with vllm() as (endpoint, kv_block):
        return _measured(endpoint, kv_block, rounds)


def measure_llama_cpp(rounds: int = 3) -> dict[str, Any]:
    """Measure llama.cpp, which varies less; about twenty minutes."""
    with llama_cpp() as (endpoint, kv_block):
        return _measured(endpoint, kv_block, rounds)


def _measured(endpoint: Endpoint, kv_block: int, rounds: int) -> dict[str, Any]:
    sent = {
        kind: {arm: build(workload, kv_block) for arm, build in ARMS.items()} for kind, workload in workloads().items()
    }
    _run(endpoint, next(iter(sent.values()))["plain"])  # not counted: a server that has just started is slower
    with Progress() as bar:
        task = bar.add_task(endpoint.where, total=len(sent) * rounds * len(ARMS))
        traffic = {
            kind: _rounds(endpoint, prompts, rounds, lambda: bar.advance(task)) for kind, prompts in sent.items()
        }
    return {"engine": endpoint.where, "rounds": rounds, "traffic": traffic}


def _rounds(
    endpoint: Endpoint, prompts: dict[str, list[Prompt]], rounds: int, step: Callable[[], None]
) -> dict[str, list[dict[str, Any]]]:
    """Return, per arm, one entry for every round; each round begins with another arm."""
    measured: dict[str, list[dict[str, Any]]] = {arm: [] for arm in prompts}
    arms = list(prompts)
    for number in range(rounds):
        for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
            measured[arm].append(_run(endpoint, prompts[arm]))
            step()
    return measured


def _run(endpoint: Endpoint, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Send the prompts one after the other to an emptied engine."""
    assert endpoint.clear is not None
    endpoint.clear()
    endpoint.ask(GREETING)  # whatever a server does at its first request is done then
    started = time.perf_counter()
    replies = [endpoint.ask(prompt) for prompt in prompts]
    seconds = time.perf_counter() - started
    waits = [reply.ttft_ms or 0.0 for reply in replies]
    return {
        "requests": len(replies),
        "prompt_tokens": sum(reply.usage.prompt_tokens or 0 for reply in replies),
        "cached_tokens": sum(reply.usage.cached_tokens or 0 for reply in replies),
        "unreported": sum(reply.usage.cached_tokens is None for reply in replies),
        "seconds": seconds,
        "ttft_ms_median": median(waits),
        "ttft_ms_sum": sum(waits),
    }
