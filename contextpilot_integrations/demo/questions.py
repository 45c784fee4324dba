"""The demo's questions: read from a file or made from the documents, then selected and shuffled by a seed."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from contextpilot_core import ConfigError, ContextBlock
from contextpilot_core.checks import is_unicode
from contextpilot_core.files import parse, read_text
from contextpilot_integrations.demo.documents import terms


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

    Raises `ConfigError` for a file that is absent, no UTF-8, holds no question or has another shape.
    """
    text = read_text(path, fix="give a .json or .txt file in UTF-8 as --questions", error=ConfigError)
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
    data = parse(text, name, fix=shape, error=ConfigError)
    try:
        bank = QuestionBank(batch=_topics(data["batch"], "questions"), chat=_topics(data["chat"], "turns"))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{name}: not a file of questions ({type(error).__name__}: {error}); {shape}") from None
    if not bank.batch or not bank.chat:
        raise ConfigError(f"{name}: needs at least one topic under 'batch' and one under 'chat'; {shape}")
    return bank


def _topics(entries: object, key: str) -> tuple[Topic, ...]:
    if not isinstance(entries, list):
        raise TypeError(f"expected a list of topics, got {type(entries).__name__}")
    return tuple(_topic(number, entry, key) for number, entry in enumerate(entries, start=1))


def _topic(number: int, entry: Mapping[str, Any], key: str) -> Topic:
    if not isinstance(entry, Mapping):
        raise TypeError(f"topic {number} is a {type(entry).__name__}, it must be an object")
    name, questions = entry["topic"], entry[key]
    if not isinstance(name, str) or not isinstance(questions, list) or not questions or not all(map(_asks, questions)):
        raise ValueError(f"topic {number} must have a name and a list of one question or more, each a text")
    return Topic(name=name, questions=tuple(questions))


def _asks(question: object) -> bool:
    return isinstance(question, str) and bool(question.strip()) and is_unicode(question)


TOPICS = 8
SHORTEST_TERM = 4
FILLERS = frozenset(
    "about above after again also always another because been before being below best between both come could each "
    "even every first given gives good here just last like made make many more most much must need never next only "
    "other over real same should since some still such take them they though those through today under until very want "
    "well were while within without would".split()
)
"""Words that are no subject of a question."""
BATCH_WORDING = (
    'What is said about "{term}" and "{first}"?',
    'How does "{term}" go together with "{second}"?',
    'What should I know about "{term}" when I care about "{first}"?',
    'What does "{term}" have to do with "{third}"?',
    'What is "{term}", and where does "{second}" come in?',
    'What holds for "{term}" with regard to "{first}" and "{third}"?',
)
CHAT_WORDING = (
    'What is said about "{term}"?',
    'How is "{term}" connected with "{first}"?',
    'What does "{second}" mean for "{term}"?',
    'What else should I know about "{term}" and "{third}"?',
)


def questions_about(chunks: Sequence[ContextBlock]) -> QuestionBank:
    """Make a bank of questions around the terms that many, but not most, of the chunks mention.

    A term weighs as many chunks as hold it, times the titles that name it; its companions are the terms found most
    often beside it. Ties go by the alphabet, so equal documents give equal questions.
    """
    words = [set(_telling(chunk.text)) for chunk in chunks]
    frequency = Counter(word for held in words for word in held)
    titled = Counter(word for title in {chunk.title or "" for chunk in chunks} for word in set(_telling(title)))
    common = {word for word, count in frequency.items() if count > max(2, len(chunks) // 8)}
    candidates = [word for word in frequency if word not in common] or list(frequency)
    ranked = sorted(candidates, key=lambda word: (-frequency[word] * (1 + titled[word]), word))
    batch, chat = list[Topic](), list[Topic]()
    for term in ranked[:TOPICS]:
        beside = Counter(word for held in words if term in held for word in held if word != term and word not in common)
        names = _companions(term, beside)
        for bank, wordings in ((batch, BATCH_WORDING), (chat, CHAT_WORDING)):
            bank.append(Topic(name=term, questions=tuple(wording.format_map(names) for wording in wordings)))
    if not batch:
        fallback = Topic(name="documents", questions=("What do these documents say?", "What are they about?"))
        return QuestionBank(batch=(fallback,), chat=(fallback,))
    return QuestionBank(batch=tuple(batch), chat=tuple(chat))


def _telling(text: str) -> list[str]:
    return [word for word in terms(text) if len(word) >= SHORTEST_TERM and word.isalpha() and word not in FILLERS]


def _companions(term: str, beside: Counter[str]) -> dict[str, str]:
    best = sorted(beside, key=lambda word: (-beside[word], word))[:3]
    first, second, third = (best + ["the rest"] * 3)[:3]
    return {"term": term, "first": first, "second": second, "third": third}
