"""Every page's Python code runs: the documentation, and the README."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import require, require_local_model
from tests.snippets import ROOT, needs, run, snippets

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECRET = "a secret that only this test knows"
MODEL = {"my-model": "smollm2"}
PACKAGES = ("contextpilot_core", "contextpilot_integrations")
REFERENCE = re.compile(r'docs: "([^"]+)"')
TURN_EVENT = "contextpilot_turn"


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[str]]:
    """The URLs of two model servers."""
    require("openai")
    require_local_model()
    from contextpilot_integrations.serving.local.engine import LocalEngine

    with ExitStack() as stack:
        yield [stack.enter_context(LocalEngine(process=True, threads=1)).base_url for _ in range(2)]


@pytest.fixture
def model_server(replicas: list[str]) -> Mapping[str, str]:
    return {**MODEL, "http://localhost:8000/v1": replicas[0]}


@pytest.fixture
def model_servers(replicas: list[str]) -> Mapping[str, str]:
    return {**MODEL, "http://gpu-1:8000/v1": replicas[0], "http://gpu-2:8000/v1": replicas[1]}


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    require("redis")
    from tests.integrations.redis_server import RedisServer

    server = RedisServer(tmp_path)
    server.start()
    yield {"redis://localhost:6379": server.url}
    server.close()


SERVERS = {"a model server": "model_server", "model servers": "model_servers", "redis": "redis_server"}
HERE = [page for page in PAGES if snippets(page) and "vllm" not in needs(page)]


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_runs(page, request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTEXTPILOT_SECRET", SECRET)
    addresses = {"LocalEngine()": "LocalEngine(threads=1)"}  # others may want the cores
    for need in sorted(needs(page)):
        addresses |= request.getfixturevalue(SERVERS[need])
    run(page, addresses)


def test_what_docstrings_refer_to_is_there():
    headings = [
        line.lstrip("# ")
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    named = {name for path in sources for name in REFERENCE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert not {name for name in named if not any(heading.startswith(name) for heading in headings)}


def test_every_metric_is_listed():
    require("prometheus_client")
    from contextpilot_integrations.serving.metrics import EngineMetrics

    listed = set(re.findall(r"`(contextpilot_\w+?)(?:_total)?`", (ROOT / "docs/how-to/metrics.md").read_text("utf-8")))
    assert {family.name for family in EngineMetrics(namespaces=["acme"]).collect()} == listed - {TURN_EVENT}
