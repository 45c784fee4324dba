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


@pytest.mark.parametrize(
    ("command", "choices"),
    [
        ("replay", ["offline|online|window", "greedy|paper|none", "id|text"]),
        ("gate", ["online|batch", "likelihood|answers"]),
    ],
)
def test_help_names_the_choices(command, choices):
    require("typer")
    done = run(command, "--help")
    assert done.returncode == 0
    for choice in choices:
        assert choice in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "absent.jsonl", "--corpus", "absent.jsonl"],
        ["doctor", "absent.txt"],
        ["gate", "--base-url", "http://127.0.0.1:9/v1", "--questions", "absent.jsonl"],
        ["demo", "--base-url", "http://127.0.0.1:9/v1", "--docs", "absent"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_errors_look_alike_one_line_and_no_traceback(arguments):
    for package in ("typer", "rich", "openai", "rank_bm25"):
        require(package)
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("contextpilot-rag: ") and "absent" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["replay", "--help"], []], ids=str)
def test_the_module_runs_the_same_command_line(arguments):
    require("typer")
    command = [sys.executable, "-m", "contextpilot_integrations.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    script = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (script.returncode, script.stdout, script.stderr)
    assert "Usage: contextpilot-rag " in done.stdout + done.stderr


def test_importing_the_room_runs_nothing_and_needs_no_extra():
    code = (
        "import sys; sys.modules['typer'] = sys.modules['rich'] = None\n"
        "from contextpilot_integrations import cli; print(cli.__all__, cli.main.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["['main']", "main"]
