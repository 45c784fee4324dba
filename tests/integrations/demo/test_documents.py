"""The demo's documents, search and questions: no model is needed for them."""

import json
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
)
from contextpilot_integrations.demo.questions import (
    QuestionBank,
    Topic,
    committed_questions,
    questions_about,
    read_questions,
    select,
)

pytest.importorskip("rank_bm25", reason="pip install 'contextpilot-rag[demo]'")


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
    from contextpilot_integrations.demo.documents import Retriever

    chunks = chunk_texts(
        [("1", "purring cats"), ("2", "barking dogs"), ("3", "cats and dogs"), ("4", "fish"), ("5", "birds")]
    )
    found = Retriever(chunks).search("Which cats are purring?", 3)
    assert [chunk.id for chunk in found][:2] == ["1#1", "3#1"]
    assert len(Retriever(chunks).search("nothing of the sort", 50)) == 5


def test_committed_questions_are_natural_and_distinct() -> None:
    bank = committed_questions()
    asked = [question for topic in bank.batch for question in topic.questions]
    assert len(asked) == len(set(asked))
    assert all(question.endswith("?") for question in asked)
    assert all(len(topic.questions) >= 4 for topic in bank.batch + bank.chat)


def test_selection_follows_the_seed() -> None:
    bank = committed_questions()
    runs = [select(bank, seed=seed, topics=3, users=4, turns=4) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    for run in runs:
        assert len(run.batch) == len(set(run.batch)) == 12
        assert len(run.chat) == 4
        assert sum(any(question in topic.questions for question in run.batch) for topic in bank.batch) == 3


def test_small_banks_give_what_they_have() -> None:
    topic = Topic(name="one", questions=("a?", "b?"))
    run = select(QuestionBank(batch=(topic,), chat=(topic,)), seed=0, topics=3, users=4, turns=4)
    assert sorted(run.batch) == ["a?", "b?"]
    assert run.chat == ("a?", "b?")


def test_questions_come_from_json_or_from_lines(tmp_path: Path) -> None:
    data = {"batch": [{"topic": "t", "questions": ["a?"]}], "chat": [{"topic": "t", "turns": ["b?"]}]}
    (tmp_path / "q.json").write_text(json.dumps(data), "utf-8")
    (tmp_path / "q.txt").write_text("a?\n\n b? \n", "utf-8")
    assert read_questions(tmp_path / "q.json").chat[0].questions == ("b?",)
    assert read_questions(tmp_path / "q.txt").batch[0].questions == ("a?", "b?")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"batch": [], "chat": []}', '{"batch": [{"topic": "t", "questions": [1]}], "chat": []}']
)
def test_a_file_of_another_shape_is_refused_with_the_shape(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.json").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="shape"):
        read_questions(tmp_path / "q.json")


def test_questions_about_any_documents_are_always_the_same() -> None:
    chunks = chunk_texts([("a.md", "# Cats\nCats purr.\n# Dogs\nDogs bark at cats.\n# Birds\nBirds fly from cats.")])
    bank = questions_about(chunks)
    assert bank == questions_about(chunks)
    assert [topic.name for topic in bank.batch] == ["birds", "dogs", "bark", "purr"], "every chunk names cats"
    assert len(bank.batch) == len(bank.chat)
    assert questions_about(chunk_texts([("x", "1")])).batch[0].questions


def test_generated_questions_share_documents_across_users() -> None:
    from contextpilot_integrations.demo.documents import Retriever

    chunks = python_reference()
    retriever = Retriever(chunks)
    topic = questions_about(chunks).batch[0]
    found = [{chunk.id for chunk in retriever.search(question, 6)} for question in topic.questions[:4]]
    assert any(one & other for number, one in enumerate(found) for other in found[:number])
