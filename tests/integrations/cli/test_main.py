"""The console script, run as a person would: in a process of its own."""

import subprocess
import sys

import pytest

from tests.conftest import require
from tests.integrations.console import run


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_a_core_only_install_says_which_extra_is_missing(absent):
    done = run("--help", before=f"import sys; sys.modules[{absent!r}] = None")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f'contextpilot-rag: the package {absent!r} is not installed; run: pip install "contextpilot-rag[cli]"\n'
    )


def test_an_error_of_ours_is_one_line_without_a_traceback(tmp_path):
    require("typer")
    done = run("replay", str(tmp_path / "no-such-trace.jsonl"), "--corpus", str(tmp_path / "no-such-corpus.jsonl"))
    assert done.returncode == 2
    assert "no-such-" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_module_runs_the_same_command_line():
    require("typer")
    command = [sys.executable, "-m", "contextpilot_integrations.cli", "replay", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--corpus" in done.stdout


def test_importing_the_room_runs_nothing_and_needs_no_extra():
    code = (
        "import sys; sys.modules['typer'] = sys.modules['rich'] = None\n"
        "from contextpilot_integrations import cli; print(cli.__all__, cli.main.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["['main']", "main"]
