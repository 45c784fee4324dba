"""The questions of an evaluation: what was asked, what was retrieved, and what the answer should be."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from contextpilot_core import RequestError
from contextpilot_core.checks import is_unicode
from contextpilot_core.files import read_json_lines

_SHAPE = (
    'a line holds {"query": "...", "documents": ["best first", ...], "answers": ["gold", ...]}, and for the last turn '
    'of a conversation "earlier": [{"query", "documents", "answer"}, ...]; "cluster": "..." where questions belong '
    "together"
)


@dataclass(frozen=True, kw_only=True)
class EarlierTurn:
    """An earlier turn of a conversation: its documents best first, and what was answered."""

    query: str
    documents: tuple[str, ...]
    answer: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question: documents best first, gold answers (the first one is scored by likelihood), earlier turns.

    ``cluster`` names what makes questions depend on each other, such as a conversation; empty: nothing does.
    """

    query: str
    documents: tuple[str, ...]
    answers: tuple[str, ...]
    earlier: tuple[EarlierTurn, ...] = ()
    cluster: str = ""

    @property
    def key(self) -> str:
        """A name that follows from what is asked alone, so that results are found again."""
        content = json.dumps({name: value for name, value in asdict(self).items() if name != "cluster"}, sort_keys=True)
        return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]


def read_cases(path: str | PathLike[str]) -> list[Case]:
    """Read a JSON Lines file of questions; equal documents of one question are kept once.

    Raises:
        RequestError: the file cannot be read, holds no question, the same one twice, or a line of another shape.
    """
    cases: dict[str, Case] = {}
    for where, value in read_json_lines(path, fix=f"give a .jsonl file; {_SHAPE}", error=RequestError):
        case = _case(value, where)
        if case.key in cases:
            raise RequestError(f"{where}: this question stands in the file before; keep it once")
        cases[case.key] = case
    if not cases:
        raise RequestError(f"{path} holds no question; {_SHAPE}")
    return list(cases.values())


def _case(value: Any, where: str) -> Case:
    try:
        return Case(
            query=_text(value["query"]),
            documents=_texts(value["documents"]),
            answers=_texts(value["answers"]),
            earlier=tuple(_turn(turn) for turn in value.get("earlier", ())),
            cluster=_text(value["cluster"]) if "cluster" in value else "",
        )
    except (KeyError, TypeError, AttributeError) as error:
        # No text of the line: these messages name kinds and keys only.
        raise RequestError(f"{where}: no question ({type(error).__name__}: {error}); {_SHAPE}") from None


def _turn(value: Mapping[str, Any]) -> EarlierTurn:
    return EarlierTurn(query=_text(value["query"]), documents=_texts(value["documents"]), answer=_text(value["answer"]))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        kind = "an empty one" if value == [] else type(value).__name__
        raise TypeError(f"expected a list of texts with one text or more, got {kind}")
    return tuple(dict.fromkeys(_text(entry) for entry in value))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"expected a text, got {type(value).__name__}")
    if not is_unicode(value):
        raise TypeError("a text holds half a character, which no server can be sent")
    return value
