"""A real vLLM server on CPU, started once for all tests; only where `make test-vllm` asks for it."""

import os
from pathlib import Path

import pytest

from devtools.vllm.environment import VARIABLE, Environment
from devtools.vllm.server import VLLMServer

POOL_BLOCKS = 260
"""8,320 tokens: eight prompts of 1,000 tokens make the next one evict."""

_running = pytest.StashKey[VLLMServer]()


@pytest.fixture(scope="session")
def server(request):
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} does not name an environment with vLLM; run: make test-vllm")
    with VLLMServer(Environment(Path(folder)), blocks=POOL_BLOCKS) as running:
        request.config.stash[_running] = running
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show with every failure what the server said."""
    report = yield
    running = item.config.stash.get(_running, None)
    if report.failed and running is not None:
        report.sections.append(("end of vLLM's log", running.log_end()))
    return report
