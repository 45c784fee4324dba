"""The page about the code, against the code: its rooms, its way of a request, its words where to change what."""

import ast
import re
from itertools import chain
from pathlib import Path

import pytest

from tests.snippets import ROOT

PACKAGES = {"contextpilot_core": "core", "contextpilot_integrations": "integrations"}
PAGE = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
MOST_MODULES, MOST_FILES, MOST_FOLDERS, MOST_STEPS = 10, 8, 10, 9


def rooms(package: str) -> list[Path]:
    found = [folder.parent for folder in sorted((ROOT / package).rglob("__init__.py"))]
    return [folder for folder in found if folder != ROOT / package]


def modules(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("__")]


ROOMS = [*chain.from_iterable(map(rooms, PACKAGES))]
MODULES = [*chain.from_iterable(modules(folder) for folder in (*(ROOT / name for name in PACKAGES), *ROOMS))]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def mirrored(path: Path) -> Path:
    """Return where the tests of a room or a module stand."""
    package, *inner = path.relative_to(ROOT).parts
    return ROOT.joinpath("tests", PACKAGES[package], *inner)


def behaves(module: Path) -> bool:
    """Tell whether a module holds a function or a method with a body of its own."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def test_every_room_has_one_line():
    lines = re.findall(r"^\| `(contextpilot_[a-z_/]+)` \|", PAGE, re.MULTILINE)
    assert sorted(lines) == sorted(map(named, ROOMS))


def test_the_way_of_a_request_is_short_and_names_what_is_there():
    steps = re.findall(r"^(\d)\. `?([a-z_/]+\.py)?", section("A request's way"), re.MULTILINE)
    assert len(steps) <= MOST_STEPS
    assert all((ROOT / "contextpilot_core" / path).is_file() for _, path in steps if path)


def test_every_path_on_the_page_is_there():
    paths = re.findall(r"`([\w/]+/[\w/.]*\w)/?`", PAGE)
    places = [ROOT, *(ROOT / package for package in PACKAGES)]
    assert paths
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_every_name_on_the_page_is_there():
    names = set(re.findall(r"`(?:\w+\.)*([A-Z]\w+|[a-z_]+_[a-z_]+)`", PAGE)) - set(PACKAGES)
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert {name for name in names if not re.search(rf"\b(def|class) {name}\b|^{name} = ", text, re.MULTILINE)} <= {
        "llama_index"
    }


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_a_room_is_small_and_says_what_it_is_for(room):
    assert len(modules(room)) <= MOST_MODULES
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))


def test_the_top_of_the_core_is_small():
    entries = [path for path in (ROOT / "contextpilot_core").iterdir() if path.name != "__pycache__"]
    assert len([path for path in entries if path.is_file()]) <= MOST_FILES
    assert len([path for path in entries if path.is_dir()]) <= MOST_FOLDERS


@pytest.mark.parametrize("package", PACKAGES)
def test_test_folders_mirror_the_rooms(package):
    home = ROOT / "tests" / PACKAGES[package]
    there = {folder.parent for folder in home.rglob("test_*.py")} - {home}
    assert there == {mirrored(room) for room in rooms(package)}


@pytest.mark.parametrize("module", [module for module in MODULES if behaves(module)], ids=named)
def test_a_module_with_behaviour_has_its_tests(module):
    home = mirrored(module.parent)
    assert (home / f"test_{module.name}").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_use_the_core_through_its_faces(package):
    """Import rules say in which direction; this says by which door."""
    deep = []
    for module in (ROOT / package).rglob("*.py"):
        own = module.relative_to(ROOT).parts[:2]
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("contextpilot_core."):
                parts = tuple((node.module or "").split("."))
                inside = ROOT.joinpath(*parts[:2])
                if len(parts) > 2 and inside.is_dir() and parts[:2] != own:
                    deep.append(f"{named(module)}: {node.module}")
    assert deep == []
