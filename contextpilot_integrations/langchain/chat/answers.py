"""Answers that carry the documents of their labels: to the caller, and not into the history."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

LABELLED = "contextpilot_sources"
"""Key in ``response_metadata`` of an answer: label -> its document, in JSON values."""

_Answer = TypeVar("_Answer")


def with_sources(answer: _Answer, labelled: Mapping[int, Document]) -> _Answer:
    """Return a copy of an answer that carries its documents; the answer itself where there are none.

    Whoever has stored answers so far can go on: of the metadata, what JSON cannot hold is carried as text.
    """
    if not labelled or not isinstance(answer, BaseMessage):
        return answer
    carried = {
        str(label): {"id": each.id, "page_content": each.page_content, "metadata": _in_json(each.metadata)}
        for label, each in labelled.items()
    }
    return answer.model_copy(update={"response_metadata": {**answer.response_metadata, LABELLED: carried}})


def carried_by(answer: BaseMessage) -> dict[int, Document]:
    """Return what `with_sources` put into an answer, by label; what others put there is left out."""
    carried, found = answer.response_metadata.get(LABELLED), {}
    for label, each in carried.items() if isinstance(carried, Mapping) else ():
        with suppress(TypeError, ValueError):  # no label, or no document
            found[int(label)] = Document(**each)
    return found


def _in_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for key, value in metadata.items():
        try:
            kept[str(key)] = json.loads(json.dumps(value, default=str))
        except (RecursionError, TypeError, ValueError):  # it contains itself, or its keys are no text
            kept[str(key)] = str(value)
    return kept
