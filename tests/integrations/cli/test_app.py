"""The commands of ``contextpilot-rag``, run as a person would: in a process of its own."""

from importlib import metadata

import pytest

from tests.conftest import require
from tests.integrations.console import run


def test_help_names_the_commands():
    require("typer")
    done = run("--help")
    assert done.returncode == 0
    assert "replay" in done.stdout
    assert "demo" in done.stdout


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


@pytest.mark.parametrize("command", ["replay", "doctor", "gate", "demo"])
def test_every_command_has_its_help_and_shows_it_with_the_list(command):
    require("typer")
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    first = next(line.strip() for line in done.stdout.splitlines() if line.strip() and "Usage" not in line)
    assert first.split()[0] in run("--help").stdout


def test_a_command_that_is_none_is_refused():
    require("typer")
    done = run("replya")
    assert (done.returncode, done.stdout) == (2, "")
    assert "replya" in done.stderr and "Traceback" not in done.stderr


def test_the_help_loads_no_optional_package_but_those_of_the_command_line():
    require("typer")
    done = run("--help", before="import atexit, sys; atexit.register(lambda: print('openai' in sys.modules))")
    assert done.stdout.splitlines()[-1] == "False"
