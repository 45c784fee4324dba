"""The demo's questions: committed, read from a file, or made from any documents."""

import json
from pathlib import Path

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.demo.documents import chunk_texts, python_reference, terms
from contextpilot_integrations.demo.questions import (
    QuestionBank,
    Topic,
    committed_questions,
    questions_about,
    read_questions,
    select,
)
from contextpilot_integrations.retrieval import Bm25Index
from tests.conftest import require


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


def test_a_byte_order_mark_is_no_part_of_a_question(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("What is a tree?\n", encoding="utf-8-sig")
    assert read_questions(tmp_path / "q.txt").batch[0].questions == ("What is a tree?",)


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
    "text",
    [
        *("", "[]", "{}", "[" * 100_000, '{"batch": [], "chat": []}', "null", "5", '{"batch": null, "chat": []}'),
        *('{"batch": {}, "chat": []}', '{"batch": [5], "chat": []}', '{"batch": ["topic"], "chat": []}'),
        *('{"batch": [{"topic": 5, "questions": ["q"]}], "chat": []}', '{"batch": "abc", "chat": "abc"}'),
        *('{"batch": [{"topic": "t", "questions": "abc"}], "chat": []}', '{"batch": [{"topic": "t"}], "chat": []}'),
        r'{"batch": [{"topic": "t", "questions": ["\ud83d"]}], "chat": []}',
        '{"batch": [{"topic": "t", "questions": [1]}], "chat": []}',
    ],
    ids=lambda text: text[:20],
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
    require("rank_bm25")
    chunks = python_reference()
    index = Bm25Index(chunks, tokenize=terms)
    topic = questions_about(chunks).batch[0]
    found = [{hit.block.id for hit in index.search(question, 6)} for question in topic.questions[:4]]
    assert any(one & other for number, one in enumerate(found) for other in found[:number])


def test_a_bank_of_one_topic_fills_the_place_of_all() -> None:
    topic = Topic(name="mine", questions=tuple(f"{number}?" for number in range(20)))
    bank = QuestionBank(batch=(topic,), chat=(topic,))
    run = select(bank, seed=1, topics=3, users=4, turns=2)
    assert len(run.batch) == len(set(run.batch)) == 12
    assert run.chat == ("0?", "1?"), "the turns of a conversation keep their order"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent.txt: cannot be read .*give a .json or .txt file"):
        read_questions(tmp_path / "absent.txt")
    for name in ("latin.txt", "latin.json"):
        (tmp_path / name).write_bytes("Wo wächst Tee?\n".encode("latin-1"))
        with pytest.raises(ConfigError, match=f"{name}: cannot be read .*give a .json or .txt file in UTF-8"):
            read_questions(tmp_path / name)
    (tmp_path / "empty.txt").write_text(" \n\n", "utf-8")
    with pytest.raises(ConfigError, match="empty.txt: holds no question; write one a line"):
        read_questions(tmp_path / "empty.txt")


def test_documents_without_a_telling_word_get_questions_all_the_same() -> None:
    bank = questions_about(chunk_texts([("x", "1 2 3"), ("y", "on and off")]))
    assert [topic.name for topic in bank.batch] == [topic.name for topic in bank.chat] == ["documents"]
    assert all(question.endswith("?") for topic in bank.batch for question in topic.questions)
    assert questions_about([]) == bank
