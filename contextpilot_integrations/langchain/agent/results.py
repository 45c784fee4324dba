"""Which tool results show documents, and what stands where in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolMessage

from contextpilot_integrations.langchain.agent.parts import Part, Parts, take_apart
from contextpilot_integrations.langchain.documents import relevance


@dataclass(frozen=True)
class RetrievedResult:
    """A tool result that shows documents, taken apart.

    ``shown``: the documents, best first, each with its part of the content; ``around`` stands before, between and
    behind them. ``with_text`` makes a message of the text that is to stand in place of the content's.
    """

    shown: tuple[tuple[Document, Part], ...]
    around: tuple[str, ...]
    with_text: Callable[[str], BaseMessage]


def documents_of(message: BaseMessage) -> list[Document]:
    """Return the documents that a tool's result brings as its artifact; none for any other message.

    A result counts when its artifact is a list of documents, or of the plain dicts that a checkpoint makes of them.
    """
    if not isinstance(message, ToolMessage) or not isinstance(message.artifact, (list, tuple)):
        return []
    documents = [document for entry in message.artifact if (document := _document(entry)) is not None]
    return documents if len(documents) == len(message.artifact) else []


def retrieved(message: BaseMessage) -> RetrievedResult | None:
    """Return a result with documents whose content shows each of their texts, taken apart; None for any other message.

    Where it does not, the application shows the model something else on purpose (a summary, cleared or redacted text),
    and that has to stay.
    """
    documents = documents_of(message)
    found = _text_in(message) if documents else None
    parts: Parts | None = None if found is None else take_apart(found[0], [each.page_content for each in documents])
    if found is None or parts is None:
        return None
    shown = [(documents[part.position], part) for part in parts.parts]
    best_first = relevance([document for document, _ in shown])
    return RetrievedResult(tuple([shown[place] for place in best_first]), parts.around, found[1])


def _text_in(message: BaseMessage) -> tuple[str, Callable[[str], BaseMessage]] | None:
    """Return the one text of a content, and what puts another in its place; None where there are several, or none."""
    content = message.content
    if isinstance(content, str):
        return content, lambda text: message.model_copy(update={"content": text})
    texts = [(place, text) for place, part in enumerate(content) if (text := _text_of(part)) is not None]
    if len(texts) != 1:
        return None
    ((place, text),) = texts

    def with_text(new: str) -> BaseMessage:
        part: Any = content[place]
        put = new if isinstance(part, str) else {**part, "text": new}
        return message.model_copy(update={"content": [*content[:place], put, *content[place + 1 :]]})

    return text, with_text


def _text_of(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else None


def _document(entry: object) -> Document | None:
    if isinstance(entry, Document):
        return entry
    if not isinstance(entry, Mapping) or not {"page_content", "metadata"} <= entry.keys():
        return None
    text, metadata = entry["page_content"], entry["metadata"]
    if not isinstance(text, str) or not isinstance(metadata, Mapping):
        return None
    try:
        return Document(id=entry.get("id"), page_content=text, metadata=dict(metadata))
    except ValueError:  # its id is no text
        return None


def why_left(message: BaseMessage, *, retriever: bool = False) -> str | None:
    """Say why a result that shows documents is left as it is; None for a result that is not, or that shows none.

    ``retriever``: whether its tool is known to retrieve, although its result may not bring the documents.
    """
    if not isinstance(message, ToolMessage) or retrieved(message) is not None:
        return None
    named = f"results of the tool {message.name!r} stay as they are, and are not de-duplicated: "
    if any([document.page_content.strip() for document in documents_of(message)]):
        return named + (
            "the texts of the documents in their artifact do not stand in their content one behind the other, each on "
            "lines of its own (shortened, escaped, JSON, a table, or found more than once)"
        )
    if retriever and not isinstance(message.artifact, (list, tuple)):
        return named + (
            "they bring no documents as their artifact; make the tool with create_contextpilot_retriever_tool, or with "
            'response_format="content_and_artifact"'
        )
    return None
