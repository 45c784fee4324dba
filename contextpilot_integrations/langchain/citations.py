"""From the labels of an answer to the documents, the same way wherever the answer came from (docs: "Citations")."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage

from contextpilot_core import Plan, RequestError, RequestTypeError
from contextpilot_integrations.langchain.agent.cited import documents_at
from contextpilot_integrations.langchain.agent.rendering import PLACES
from contextpilot_integrations.langchain.chat.answers import LABELLED, carried_by
from contextpilot_integrations.langchain.chat.history import entry_of
from contextpilot_integrations.langchain.documents import document_of, one_source
from contextpilot_integrations.serving.chat import stored_sources

Cited: TypeAlias = Plan | BaseMessage | Mapping[str, Any] | Sequence[BaseMessage] | Sequence[Document]


def sources_of(given: Cited) -> dict[int, Document]:
    """Return the document that each ``[Doc n]`` stands for, of all turns that the prompt still showed.

    Give what you have: an answer of `create_contextpilot_chat`, or its first piece; the state or the messages of an
    agent with `ContextPilotMiddleware`, for its last answer; the messages of a chat's history; the documents that
    `format_context` was given, or a plan. ``citations(answer.text, sources_of(answer))`` from ``contextpilot_core``
    gives what the answer cites.

    Where several documents had the same text, ``metadata["contextpilot_sources"]`` of the first names all of them.
    Labels that stand for nothing that is known, or for more than one text, are left out.

    Raises:
        RequestTypeError: it is something else.
        RequestError: it is the answer of an agent, whose documents are in its other messages.
    """
    if isinstance(given, Plan):
        return {label: document_of(source) for label, source in given.sources.items()}
    if isinstance(given, BaseMessage):
        if PLACES in given.response_metadata and LABELLED not in given.response_metadata:
            raise RequestError("the documents of an agent's answer are in its other messages; give its whole state")
        return _of_messages([given])
    if isinstance(given, Mapping):
        given = given.get("messages", ())
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise RequestTypeError(f"sources_of takes messages, documents or a plan, got a {type(given).__name__}")
    documents = [each for each in given if isinstance(each, Document)]
    messages = [each for each in given if isinstance(each, BaseMessage)]
    if len(documents) + len(messages) < len(given) or (documents and messages):
        raise RequestTypeError("sources_of takes a list of messages or of documents; this one holds something else")
    return {n: one_source([each]) for n, each in enumerate(documents, start=1)} or _of_messages(messages)


def _of_messages(messages: Sequence[BaseMessage]) -> dict[int, Document]:
    """Return what the last answer carries or names, else what the questions of a chat have brought."""
    for message in reversed(messages):
        if LABELLED in message.response_metadata:
            return carried_by(message)
        if PLACES in message.response_metadata:
            return documents_at(message.response_metadata[PLACES], messages)
    asked = [entry_of(message).asked for message in messages if isinstance(message, HumanMessage)]
    sources = stored_sources([each for each in asked if each is not None])
    return {label: document_of(source) for label, source in sources.items()}
