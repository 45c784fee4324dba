"""Read retrieval traces and corpora: JSON Lines, plain or gzip (docs: "Replay").

A trace line is ``{"query_id", "doc_ids": [best first]}`` or ``{"conversation_id", "turns": [{"doc_ids"}, ...]}``;
a corpus line ``{"id", "text"}``, or ``{"id", "text": null, "n_chars"}`` where texts cannot be given away. Ids are
texts; whole numbers are read as their decimal text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextpilot_core.errors import TraceError
from contextpilot_core.files import read_json_lines

_LONGEST = 1 << 40
"""Characters of a document: no sum of them exceeds what a float holds exactly."""


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
            identity, text = _id(line.get("id")), line.get("text")
            size = len(text) if isinstance(text, str) else line.get("n_chars") if text is None else None
            if identity is None or type(size) is not int or not 0 <= size <= _LONGEST:  # a bool is no number
                raise TraceError(
                    f"{where}: a document needs an 'id' (a text or a whole number) and a 'text' (or 'n_chars', a whole "
                    "number); mend the line"
                )
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
        evidence[_name(where, line, "id")] = _evidence(where, line)
    singles: list[TraceItem] = []
    conversations: list[list[TraceItem]] = []
    for where, line in _lines(path):
        turns = line.get("turns", [])
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise TraceError(f"{where}: a conversation needs 'turns', a list of contexts; mend the line")
        if "turns" in line:
            conversations.append([_item(where, turn, _evidence(where, turn)) for turn in turns])
        else:
            singles.append(_item(where, line, evidence.get(_name(where, line, "query_id"), frozenset())))
    longest = max(map(len, conversations), default=0)
    return singles + [turns[number] for number in range(longest) for turns in conversations if number < len(turns)]


def _id(value: object) -> str | None:
    """Return an id as a text, a whole number in its decimal form; None for what is no id."""
    return str(value) if type(value) is int else value if isinstance(value, str) else None


def _ids(value: object) -> list[str] | None:
    """Return a list of ids; None for what is none."""
    if not isinstance(value, list):
        return None
    found = [identity for entry in value if (identity := _id(entry)) is not None]
    return found if len(found) == len(value) else None


def _name(where: str, line: Mapping[str, Any], field: str) -> str | None:
    value = line.get(field)
    name = _id(value)
    if name is None and value is not None:
        raise TraceError(f"{where}: {field!r} is a {type(value).__name__}; it must be a text or a whole number")
    return name


def _evidence(where: str, line: Mapping[str, Any]) -> frozenset[str]:
    value = line.get("evidence_ids")
    found = [] if value is None else _ids(value)
    if found is None:
        raise TraceError(f"{where}: 'evidence_ids' must be a list of texts or whole numbers; mend the line")
    return frozenset(found)


def _item(where: str, line: Mapping[str, Any], evidence: frozenset[str]) -> TraceItem:
    ids = _ids(line.get("doc_ids"))
    if ids is None:
        raise TraceError(
            f"{where}: a context needs 'doc_ids', a list of texts or whole numbers, best first; mend the line"
        )
    return TraceItem(tuple(ids), evidence)


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, each with its place."""
    fix = "give a .jsonl or .jsonl.gz file with one JSON object a line"
    for where, value in read_json_lines(path, fix=fix, error=TraceError):
        if not isinstance(value, dict):
            raise TraceError(f"{where}: expected a JSON object, got {type(value).__name__}; mend the line")
        yield where, value
