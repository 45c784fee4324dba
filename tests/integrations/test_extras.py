"""Optional packages: loaded when they are there, named with the line that brings them when they are not."""

import json
import sys

import pytest

from contextpilot_core import ContextPilotError, MissingExtraError
from contextpilot_integrations.extras import load


def test_a_module_that_is_there_is_returned_also_one_inside_a_package():
    assert load("json", extra="any") is json
    assert load("json.decoder", extra="any") is sys.modules["json.decoder"]


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.module.inside"])
def test_an_absent_package_is_named_with_the_line_that_brings_its_extra(module):
    line = "the package 'no_such_package' is not installed; run: pip install \"contextpilot-rag\\[redis\\]\""
    with pytest.raises(MissingExtraError, match=line) as caught:
        load(module, extra="redis")
    assert isinstance(caught.value, ImportError) and isinstance(caught.value, ContextPilotError)
    assert caught.value.name == "no_such_package"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_package_without_the_module_is_no_complete_installation():
    with pytest.raises(MissingExtraError, match="the package 'json.no_such_part' is not installed") as caught:
        load("json.no_such_part", extra="any")
    assert caught.value.name == "json.no_such_part"


def test_what_an_installed_package_lacks_itself_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_dependency\n")
    (tmp_path / "broken_package.py").write_text("from json import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency") as caught:
        load("half_installed", extra="any")
    assert not isinstance(caught.value, MissingExtraError), "our extra would not bring it"
    with pytest.raises(ImportError, match="no_such_name") as caught:
        load("broken_package", extra="any")
    assert not isinstance(caught.value, MissingExtraError)


def test_a_module_that_is_switched_off_counts_as_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "json", None)
    with pytest.raises(MissingExtraError, match="contextpilot-rag\\[cli\\]"):
        load("json", extra="cli")
