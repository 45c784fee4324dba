"""The demo's documents and the search in them: no model is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_core.tokens import estimate_tokens
from contextpilot_integrations.demo.documents import (
    MAX_TOKENS,
    chunk_texts,
    pack,
    python_reference,
    read_folder,
    sections,
    terms,
)
from contextpilot_integrations.retrieval import Bm25Index
from tests.conftest import require


def test_sections_follow_underlined_and_markdown_headings() -> None:
    text = "before\n\nFirst\n*****\n\none\n\n## Second ##\ntwo\n"
    assert list(sections(text, "name")) == [("name", "before\n"), ("First", "\none\n"), ("Second", "two")]


def test_a_comment_in_a_code_fence_is_no_heading() -> None:
    text = "# Title\n```sh\n# a comment\nls\n```\n"
    assert list(sections(text, "name")) == [("Title", "```sh\n# a comment\nls\n```")]


def test_pack_joins_paragraphs_and_keeps_indentation() -> None:
    assert list(pack("one\n\n   code\n\ntwo", 100)) == ["one\n\n   code\n\ntwo"]
    assert list(pack("a" * 40 + "\n\n" + "b" * 40, 12)) == ["a" * 40, "b" * 40]


@pytest.mark.parametrize("text", ["word " * 500, "x" * 3000, "line of text\n" * 300, "One. " * 400, "wörter " * 300])
def test_pack_cuts_whatever_is_too_long_and_loses_no_character(text: str) -> None:
    pieces = list(pack(text, 50))
    assert all(0 < estimate_tokens(piece) <= 50 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_equal_chunks_are_kept_once_and_title_leads() -> None:
    chunks = chunk_texts([("a.md", "# Cats\nCats purr."), ("b.md", "# Cats\nCats purr.\n# Dogs\nDogs bark.")])
    assert [(chunk.id, chunk.text) for chunk in chunks] == [
        ("a.md#1", "Cats\nCats purr."),
        ("b.md#2", "Dogs\nDogs bark."),
    ]


def test_python_reference_holds_hundreds_of_short_distinct_chunks() -> None:
    chunks = python_reference()
    assert len(chunks) > 300
    assert len({chunk.text for chunk in chunks}) == len(chunks)
    assert max(estimate_tokens(chunk.text) for chunk in chunks) <= MAX_TOKENS + 1


def test_folder_is_read_in_order_of_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("second", "utf-8")
    (tmp_path / "a.md").write_text("first", "utf-8")
    (tmp_path / "c.pdf").write_bytes(b"\xff\xfe")
    assert [chunk.id for chunk in read_folder(tmp_path)] == ["a.md#1", "sub/b.txt#1"]


def test_folder_without_text_and_absent_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no text in files"):
        read_folder(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        read_folder(tmp_path / "absent")


def test_search_ranks_by_words_and_breaks_ties_by_place() -> None:
    require("rank_bm25")
    chunks = chunk_texts(
        [("1", "purring cats"), ("2", "barking dogs"), ("3", "cats and dogs"), ("4", "fish"), ("5", "birds")]
    )
    found = Bm25Index(chunks, tokenize=terms).search("Which cats are purring?", 3)
    assert [hit.block.id for hit in found][:2] == ["1#1", "3#1"]
    assert len(Bm25Index(chunks, tokenize=terms).search("nothing of the sort", 50)) == 5


def test_search_knows_words_without_their_case_and_without_stop_words() -> None:
    assert terms("What is the __init__ of a Class?") == ["__init__", "class"]
    assert terms("Größe, naïve; x-y") == ["größe", "naïve", "x", "y"]
    assert terms("why is it so") == []


def test_a_python_without_its_reference_says_what_to_install() -> None:
    done = run_python(
        "import sys; sys.modules['pydoc_data.topics'] = None\n"
        "from contextpilot_integrations.demo.documents import python_reference\n"
        "try: python_reference()\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    assert done.startswith("MissingExtraError") and "--docs FOLDER" in done


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
