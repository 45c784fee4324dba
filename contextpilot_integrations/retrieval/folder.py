"""Indexes in folders: one JSON file for the documents, never a pickle."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contextpilot_core import ContextBlock, RequestError, RequestTypeError
from contextpilot_core.files import private_folder, read_text, write_private
from contextpilot_integrations.retrieval.documents import Entry

FILE = "documents.json"
VERSION = 1


def save_entries(
    folder: Path, entries: Sequence[Entry], *, kind: str, options: Mapping[str, Any], files: Mapping[str, bytes]
) -> None:
    """Write ``files``, then ``documents.json``, each in one step and for its owner alone, into ``folder``.

    ``folder`` is made if need be.

    Raises:
        RequestTypeError: a document's id or metadata hold what JSON cannot.
    """
    documents = [_dumped(entry, position) for position, entry in enumerate(entries)]
    content = {"version": VERSION, "kind": kind, "options": dict(options)}
    text = json.dumps(content)[:-1] + ', "documents": [\n' + ",\n".join(documents) + "\n]}\n"
    private_folder(folder)
    for name, data in files.items():
        write_private(folder / name, data)
    write_private(folder / FILE, text.encode())


def load_entries(folder: Path, *, kind: str) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return the entries and options that `save_entries` wrote.

    Raises:
        RequestError: there is no such index in the folder, or it is of another kind or version, or damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise RequestError(f"{folder} holds no {FILE}; save an index there first")
    fix = "save the index again"
    text = read_text(path, fix=fix, error=RequestError)
    try:
        content = json.loads(text)
        found = content["kind"], content["version"]
        entries = tuple(_loaded(document) for document in content["documents"])
        options = dict(content["options"])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{path} is damaged ({type(error).__name__}); {fix}") from None
    if found != (kind, VERSION):
        raise RequestError(f"{path} is of kind {found[0]!r}, version {found[1]!r}; it must be {kind!r}, {VERSION}")
    return entries, options


def _dumped(entry: Entry, position: int) -> str:
    block = entry.block
    values = {
        "text": block.text,
        "id": block.id,
        "title": block.title,
        "metadata": None if block.metadata is None else dict(block.metadata),
        "node": dict(entry.node),
    }
    try:
        # ASCII, because a lone surrogate is legal in a str and in JSON's escapes, but not in UTF-8.
        text = json.dumps(values, allow_nan=False)
        if json.loads(text) != values:
            raise TypeError("a tuple, or a key that is no text, would come back as something else")
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestTypeError(
            f"documents[{position}] cannot be saved as JSON ({error}); keep ids and metadata to plain values"
        ) from error


def _loaded(values: Mapping[str, Any]) -> Entry:
    if not isinstance(values["text"], str):
        raise TypeError("text")
    block = ContextBlock(text=values["text"], id=values["id"], title=values["title"], metadata=values["metadata"])
    return Entry(block=block, node=dict(values["node"]))
