"""Read retrieval traces and corpora: JSON Lines, plain or gzip (docs: "Replay").

A trace line is ``{"query_id", "doc_ids": [best first]}`` or ``{"conversation_id", "turns": [{"doc_ids"}, ...]}``;
a corpus line ``{"id", "text"}``, or ``{"id", "text": null, "n_chars"}`` where texts cannot be given away.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextpilot_core.errors import TraceError


@dataclass(frozen=True, slots=True)
class TraceItem:
    """One context: document ids best first, and the ids that hold the evidence (empty when unknown)."""

    doc_ids: tuple[str, ...]
    evidence: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus. ``tokens`` = max(1, characters // 4); ``text`` may be withheld."""

    tokens: int
    text: str | None


def load_corpus(paths: Sequence[Path]) -> Mapping[str, Document]:
    """Read documents by id from one file or several.

    Raises:
        TraceError: a file or a line cannot be read.
    """
    documents: dict[str, Document] = {}
    for path in paths:
        for where, line in _lines(path):
            identity, text = line.get("id"), line.get("text")
            size = len(text) if isinstance(text, str) else line.get("n_chars") if text is None else None
            if not isinstance(identity, str) or type(size) is not int or size < 0:  # a bool is no number of characters
                raise TraceError(f"{where}: a document needs a string 'id' and a 'text' (or 'n_chars'); mend the line")
            documents[identity] = Document(max(1, size // 4), text)
    return documents


def load_trace(path: Path, queries: Path | None = None) -> list[TraceItem]:
    """Read the contexts of a trace; conversations are interleaved turn by turn.

    ``queries``: a file of ``{"id", "evidence_ids"}`` lines for traces that do not carry the evidence themselves.

    Raises:
        TraceError: a file or a line cannot be read.
    """
    evidence = {}
    for where, line in _lines(queries) if queries is not None else ():
        evidence[_name(where, line, "id")] = line.get("evidence_ids")
    singles: list[TraceItem] = []
    conversations: list[list[TraceItem]] = []
    for where, line in _lines(path):
        turns = line.get("turns", [])
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise TraceError(f"{where}: a conversation needs 'turns', a list of contexts; mend the line")
        if "turns" in line:
            conversations.append([_item(where, turn, turn.get("evidence_ids")) for turn in turns])
        else:
            singles.append(_item(where, line, evidence.get(_name(where, line, "query_id"))))
    longest = max(map(len, conversations), default=0)
    return singles + [turns[number] for number in range(longest) for turns in conversations if number < len(turns)]


def _name(where: str, line: Mapping[str, Any], field: str) -> str | int | float | None:
    name = line.get(field)
    if name is not None and not isinstance(name, (str, int, float)):
        raise TraceError(f"{where}: {field!r} is a {type(name).__name__}; it must be a text")
    return name


def _item(where: str, line: Mapping[str, Any], evidence: object) -> TraceItem:
    ids = line.get("doc_ids")
    if not isinstance(ids, list) or not all(isinstance(identity, str) for identity in ids):
        raise TraceError(f"{where}: a context needs 'doc_ids', a list of strings, best first; mend the line")
    gold = frozenset(map(str, evidence)) if isinstance(evidence, list) else frozenset()
    return TraceItem(tuple(ids), gold)


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    where = f"{path.name}, line {number}"
                    try:
                        value = json.loads(line)
                    except (ValueError, RecursionError) as error:
                        reason = getattr(error, "msg", type(error).__name__)  # with no word of the line
                        raise TraceError(f"{where}: cannot be read as JSON ({reason}); mend the line") from error
                    if not isinstance(value, dict):
                        raise TraceError(f"{where}: expected a JSON object, got {type(value).__name__}; mend the line")
                    yield where, value
    except FileNotFoundError as error:
        raise TraceError(f"{path}: cannot be read, there is no such file; check its path") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read as JSON Lines ({error}); give a .jsonl or .jsonl.gz file") from error
