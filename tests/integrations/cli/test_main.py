"""The console script, run as a person would: in a process of its own."""

import os
import subprocess
import sys

import pytest

from tests.conftest import require
from tests.integrations.console import MAIN, run


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


INTERRUPTING = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
"""


@pytest.mark.parametrize(
    "module", ["numpy", "contextpilot_core", "typer", "rich", "rich.table", "contextpilot_integrations.cli.app"]
)
def test_an_interruption_during_imports_is_one_line(module):
    require("typer")
    require("rich")
    done = run("replay", "absent", "--corpus", "absent", before=INTERRUPTING.format(module=module))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "contextpilot-rag: interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--help"], "replay", "doctor"], ids=str)
def test_an_output_without_room_is_one_line(tmp_path, arguments):
    require("typer")
    require("rich")
    if isinstance(arguments, str):
        (tmp_path / "x.jsonl").write_text('{"id": "a", "text": "b", "doc_ids": ["a"], "prompt": "c"}\n' * 2)
        file = str(tmp_path / "x.jsonl")
        arguments = ["replay", file, "--corpus", file] if arguments == "replay" else ["doctor", file, "--json"]
    with open("/dev/full", "w") as full:
        done = process(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.startswith("contextpilot-rag: the output cannot be used (OSError: No space left on device)")
    assert done.stderr.count("\n") == 1
    with open("/dev/full", "w") as full:
        assert process("nonsense", stdout=subprocess.PIPE, stderr=full).returncode == 2


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_output_is_no_error_of_ours(closed):
    require("typer")
    close = f"import os, sys; os.close({1 if closed == 'stdout' else 2})"
    code = f"{close}; sys.{closed} = None; {MAIN}"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_left_ends_it_without_a_word():
    require("typer")
    reading, writing = os.pipe()
    os.close(reading)
    done = process("--help", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode in (0, 1) and done.stderr == ""


def test_no_name_breaks_the_line_or_commands_the_terminal():
    require("typer")
    done = run("doctor", "a\nb\x1b[31m" + "c" * 9_000)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert r"a\nb\x1b[31m" in done.stderr and "\x1b" not in done.stderr
    assert len(done.stderr) < 3_000 and done.stderr.endswith("give a file of UTF-8 text\n")


def process(*arguments, **streams):
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, timeout=120, **streams)
