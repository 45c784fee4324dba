"""The tree of exceptions is the one that its documentation draws, and each class is a builtin kind, too."""

import copy
import inspect
import pickle
import re

import pytest

from contextpilot_core import errors
from contextpilot_core.errors import ContextPilotError

CLASSES = {name: found for name, found in vars(errors).items() if inspect.isclass(found)}
LINE = re.compile(r"^    ([| ]*[|`]-- )?(\w+)(?: \((\w+)\))?(?: {2,}.*)?$", re.MULTILINE)


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Return what the documentation draws: class -> (class above it, builtin kind)."""
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[str] = []
    for branch, name, kind in LINE.findall(errors.__doc__ or ""):
        del above[len(branch) // 4 :]
        found[name] = (above[-1] if above else None, kind or None)
        above.append(name)
    return found


def test_the_drawing_shows_every_class_under_the_one_that_it_extends():
    bases = {name: [base.__name__ for base in found.__bases__] for name, found in CLASSES.items()}
    assert bases.pop("ContextPilotError") == ["Exception"]
    expected = {name: [part for part in parts if part] for name, parts in drawn().items()}
    assert expected.pop("ContextPilotError") == []
    assert bases == expected


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"ContextPilotError"}))
def test_each_is_caught_as_ours_and_as_a_builtin_kind(name: str):
    found = CLASSES[name]
    kinds = [base for base in found.__mro__ if base.__module__ == "builtins" and base not in Exception.__mro__]
    assert kinds
    for kind in (ContextPilotError, *kinds):
        with pytest.raises(kind, match="a value, its rule and the fix"):
            raise found("a value, its rule and the fix")


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_errors_cross_processes(name: str):
    error = CLASSES[name]("what happened")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == "what happened"
