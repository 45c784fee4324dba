"""The demo's questions: read from a file or made from the documents, then selected and shuffled by a seed."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from contextpilot_core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Questions of several users about one subject, or the turns of one conversation about it."""

    name: str
    questions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class QuestionBank:
    """Everything that could be asked: topics of single questions, and conversations."""

    batch: tuple[Topic, ...]
    chat: tuple[Topic, ...]


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What one run asks: ``batch`` in order of arrival, ``chat`` turn by turn."""

    batch: tuple[str, ...]
    chat: tuple[str, ...]


def committed_questions() -> QuestionBank:
    """Return the questions about the Python language reference that this package carries."""
    return _parse(files(__package__).joinpath("questions.json").read_text("utf-8"), "questions.json")


def read_questions(path: Path) -> QuestionBank:
    """Read questions from a ``.json`` file shaped like the committed one, or from a text with one question a line.

    Raises `ConfigError` for a file that is absent, holds no question or has another shape.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"--questions {path}: cannot be read ({error.strerror}); give a .json or .txt file"
        ) from error
    if path.suffix.lower() == ".json":
        return _parse(text, str(path))
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise ConfigError(f"--questions {path}: holds no question; write one a line")
    topic = Topic(name=path.stem, questions=lines)
    return QuestionBank(batch=(topic,), chat=(topic,))


def select(bank: QuestionBank, *, seed: int, topics: int, users: int, turns: int) -> Questions:
    """Draw ``topics`` topics with ``users`` questions each in mixed order of arrival, and one conversation.

    The same seed gives the same questions; the turns of a conversation keep their order. A bank of one topic, for
    example the lines of a text file, gives its place up to ``topics`` times ``users`` questions.
    """
    draw = random.Random(seed)
    drawn = draw.sample(bank.batch, min(topics, len(bank.batch)))
    per_topic = users if len(bank.batch) > 1 else topics * users
    asked = [
        question for topic in drawn for question in draw.sample(topic.questions, min(per_topic, len(topic.questions)))
    ]
    draw.shuffle(asked)
    return Questions(batch=tuple(asked), chat=draw.choice(bank.chat).questions[:turns])


def _parse(text: str, name: str) -> QuestionBank:
    shape = 'shape: {"batch": [{"topic": "...", "questions": ["..."]}], "chat": [{"topic": "...", "turns": ["..."]}]}'
    try:
        data = json.loads(text)
        bank = QuestionBank(batch=_topics(data["batch"], "questions"), chat=_topics(data["chat"], "turns"))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{name}: not a file of questions ({type(error).__name__}: {error}); {shape}") from error
    if not bank.batch or not bank.chat:
        raise ConfigError(f"{name}: needs at least one topic under 'batch' and one under 'chat'; {shape}")
    return bank


def _topics(entries: Sequence[dict[str, Any]], key: str) -> tuple[Topic, ...]:
    topics = tuple(Topic(name=str(entry["topic"]), questions=tuple(entry[key])) for entry in entries)
    for topic in topics:
        if not topic.questions or not all(
            isinstance(question, str) and question.strip() for question in topic.questions
        ):
            raise ValueError(f"topic {topic.name!r} must hold one question or more, each a text")
    return topics
