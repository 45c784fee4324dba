"""What the labels of an agent's answer stand for: places in its messages, kept with the answer, and no text twice."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from contextpilot_integrations.langchain.agent.rendering import PLACES, Rendering
from contextpilot_integrations.langchain.agent.results import documents_of
from contextpilot_integrations.langchain.documents import one_source

_Response = TypeVar("_Response")


def labelled_documents(rendering: Rendering) -> dict[int, Document]:
    """Return the documents by the labels that a rendering gives them."""
    found = {place.message: documents_of(rendering.messages[place.message]) for place in _places(rendering)}
    return {
        label: one_source([found[place.message][place.position] for place in places])
        for label, places in rendering.labelled.items()
    }


def with_places(response: _Response, rendering: Rendering) -> _Response:
    """Return a model's response whose answer carries where the documents of its labels are."""
    result = getattr(response, "result", None)
    if not rendering.labelled or not isinstance(result, list) or not is_dataclass(response):
        return response
    named = {
        str(label): [[_name(rendering.messages[place.message]), place.position] for place in places]
        for label, places in rendering.labelled.items()
    }
    return replace(response, result=[_noted(message, named) for message in result])  # type: ignore[type-var]


def documents_at(places: object, messages: Sequence[BaseMessage]) -> dict[int, Document]:
    """Return what `with_places` noted in an answer among these messages, by label; what is not there is left out."""
    results: dict[str, list[BaseMessage]] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            results.setdefault(_name(message), []).append(message)
    documents = {name: documents_of(found[0]) for name, found in results.items() if len(found) == 1}
    labelled: dict[int, Document] = {}
    for label, named in places.items() if isinstance(places, Mapping) else ():
        with suppress(LookupError, TypeError, ValueError):  # others wrote it
            found = [documents[name][position] for name, position in named if position < len(documents.get(name, ()))]
            if found:
                labelled[int(label)] = one_source(found)
    return labelled


def _places(rendering: Rendering) -> list[Any]:
    return [place for places in rendering.labelled.values() for place in places]


def _name(message: BaseMessage) -> str:
    """Return what a result is known by: the id that an agent's state gave it, or that of its call."""
    return str(message.id or getattr(message, "tool_call_id", ""))


def _noted(message: BaseMessage, named: Mapping[str, Any]) -> BaseMessage:
    if not isinstance(message, AIMessage) or message.tool_calls:
        return message
    return message.model_copy(update={"response_metadata": {**message.response_metadata, PLACES: named}})
