"""The pages whose code needs vLLM."""

import pytest

from tests.conftest import require
from tests.snippets import ROOT, needs, run
from tests.vllm.following import forget_everything

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "vllm" in needs(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_runs(page, server):
    require("openai")
    forget_everything(server)
    run(
        page,
        {
            "my-model": server.model,
            "http://localhost:8000/v1": server.base_url,
            "tcp://localhost:5557": server.events_endpoint,
            "tcp://localhost:5558": server.replay_endpoint,
        },
    )
