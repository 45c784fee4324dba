"""The commands of ``contextpilot-rag``, run as a person would: in a process of its own."""

import os
import shutil
import subprocess
import sys

import pytest

import contextpilot_core
from tests.conftest import absent, require
from tests.integrations.console import run


def test_help_names_the_commands():
    require("typer")
    done = run("--help")
    assert done.returncode == 0
    assert "replay" in done.stdout
    assert "demo" in done.stdout


def test_no_arguments_show_the_help():
    require("typer")
    done = run()
    assert done.returncode == 2
    assert "Usage" in done.stderr and "replay" in done.stderr


def test_version():
    require("typer")
    assert run("--version").stdout == f"contextpilot-rag {contextpilot_core.__version__}\n"


@pytest.mark.parametrize("command", ["replay", "doctor", "gate", "demo"])
def test_every_command_has_its_help_and_shows_it_with_the_list(command):
    require("typer")
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    first = next(line.strip() for line in done.stdout.splitlines() if line.strip() and "Usage" not in line)
    assert first.split()[0] in run("--help").stdout


@pytest.mark.parametrize("command", [[], ["replay"], ["doctor"], ["gate"], ["demo"]], ids=str)
def test_flags_are_shown_as_flags_and_no_line_is_cut_off(command):
    require("typer")
    lines = [line.strip() for line in run(*command, "--help").stdout.splitlines()]
    flags = ["--version", "--install-completion", "--help"] if not command else ["--help", "--json", "--quick"]
    shown = [line.split() for line in lines if line.split()[:1] and line.split()[0] in flags]
    assert shown
    assert all(not words[1].startswith("<") for words in shown)
    assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage: ")]


def test_completion_is_installed_and_completes(tmp_path):
    require("typer")
    bash = shutil.which("bash") or absent("bash is not installed")
    for option in ("--install-completion", "--show-completion"):
        command = f"'{sys.executable}' -m contextpilot_integrations.cli {option}; exit $?"
        done = subprocess.run([bash, "-c", command], capture_output=True, text=True, env=home(tmp_path), timeout=120)
        assert done.returncode == 0, done.stderr
    assert "_CONTEXTPILOT_RAG_COMPLETE" in done.stdout
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert script.name == "contextpilot-rag.sh"
    asked = {"_CONTEXTPILOT_RAG_COMPLETE": "complete_bash", "COMP_WORDS": "contextpilot-rag do", "COMP_CWORD": "1"}
    assert all(name in script.read_text() for name in asked)
    settings = "; ".join(f"os.environ[{name!r}] = {value!r}" for name, value in asked.items())
    assert run(before=f"import os; {settings}").stdout.split() == ["doctor"]


def home(folder):
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_command_that_is_none_is_refused():
    require("typer")
    done = run("replya")
    assert (done.returncode, done.stdout) == (2, "")
    assert "replya" in done.stderr and "Traceback" not in done.stderr


def test_the_help_loads_no_optional_package_but_those_of_the_command_line():
    require("typer")
    done = run("--help", before="import atexit, sys; atexit.register(lambda: print('openai' in sys.modules))")
    assert done.stdout.splitlines()[-1] == "False"
