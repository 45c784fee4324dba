"""The console script, run as a person would: in a process of its own."""

import subprocess
import sys
from importlib import metadata

import pytest

from tests.conftest import require

MAIN = "from contextpilot_integrations.cli.main import main; main()"


def run(*arguments, before=""):
    command = [sys.executable, "-c", f"{before}\nimport sys\nsys.argv[0] = 'contextpilot-rag'\n{MAIN}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_a_core_only_install_says_which_extra_is_missing(absent):
    done = run("--help", before=f"import sys; sys.modules[{absent!r}] = None")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f'contextpilot-rag: the package {absent!r} is not installed; run: pip install "contextpilot-rag[cli]"\n'
    )


def test_help_names_the_commands():
    require("typer")
    done = run("--help")
    assert done.returncode == 0
    assert "replay" in done.stdout
    assert "demo" in done.stdout


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


def test_no_arguments_show_the_help():
    require("typer")
    assert "Usage" in run().stdout


def test_version():
    require("typer")
    try:
        version = metadata.version("contextpilot-rag")
    except metadata.PackageNotFoundError:
        pytest.skip("contextpilot-rag is not installed here; run: make test")
    assert run("--version").stdout == f"contextpilot-rag {version}\n"


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
