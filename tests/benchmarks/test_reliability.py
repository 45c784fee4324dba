"""The command that plays the long form, in a very short one."""

import json
import sys

import pytest

from tests.conftest import require

for package in ("prometheus_client", "openai", "httpx", "rich"):
    require(package)

from benchmarks import reliability  # noqa: E402


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["reliability", *arguments])
    reliability.main()


def test_a_section_is_written_beside_the_others(monkeypatch, tmp_path):
    earlier, out = tmp_path / "earlier.json", tmp_path / "out.json"
    earlier.write_text(json.dumps({"soak": {"plans": 5}}))
    monkeypatch.setattr(reliability, "RESULTS", earlier)
    run(monkeypatch, "isolation", "--runs", "8", "--out", str(out))
    figures = json.loads(out.read_text())
    assert figures["soak"] == {"plans": 5}
    layers = figures["isolation"]["layers"]
    assert {layer: row["runs"] for layer, row in layers.items()} == {"engine": 4, "window": 1, "client": 1, "router": 1}
    assert all(row["differences"] == 0 and row["steps"] for row in layers.values())


def test_an_unknown_section_is_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "isolatoin")
    assert "choose of isolation" in capsys.readouterr().err
