"""The notebook about live engines, on a live engine."""

from tests.conftest import require
from tests.notebooks import FOLDER, execute


def test_it_runs(server, tmp_path, monkeypatch):
    for module in ("zmq", "msgspec", "prometheus_client"):
        require(module)
    addresses = {
        "VLLM_BASE_URL": server.base_url,
        "VLLM_EVENTS": server.events_endpoint,
        "VLLM_REPLAY": server.replay_endpoint,
    }
    execute(FOLDER / "6_live.ipynb", tmp_path, monkeypatch, addresses)
