"""The README's Python snippets run as they stand, one after the other, as a reader would type them."""

import re
from pathlib import Path

import pytest

from tests.conftest import require

README = Path(__file__).parent.parent / "README.md"
SNIPPET = re.compile(r"(?:<!-- test: (?P<how>[a-z ]+) -->\n+)?```python\n(?P<code>.*?)```", re.DOTALL)


def snippets(how: str | None) -> list[str]:
    return [found["code"] for found in SNIPPET.finditer(README.read_text(encoding="utf-8")) if found["how"] == how]


def run(codes: list[str], names: dict[str, object]) -> None:
    for code in codes:
        exec(compile(code, str(README), "exec"), names)  # the point of this test


def test_snippets_run(capsys: pytest.CaptureFixture[str]):
    for module in ("langchain_core", "llama_index.core", "rank_bm25"):
        require(module)
    codes = snippets(None)
    assert len(codes) >= 5
    run(codes, {})
    assert "expected in the cache" in capsys.readouterr().out


def test_snippets_with_the_embedded_model_run():
    require("xllamacpp")
    require("openai")
    codes = snippets("embedded model")
    assert codes
    names: dict[str, object] = {}
    run(snippets(None)[:1], names)
    run(codes, names)


def test_snippets_that_need_a_server_are_valid_python():
    codes = snippets("needs a server")
    assert codes
    for code in codes:
        compile(code, str(README), "exec")


def test_the_test_command_is_there():
    assert "\nmake test\n" in README.read_text(encoding="utf-8")
