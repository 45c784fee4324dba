"""Prompts in which the context stands before the question, and the note between them."""

from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.messages import SystemMessage
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate

from contextpilot_core import EngineConfig, Plan, estimate_tokens
from contextpilot_core.config import NoteStyle
from contextpilot_core.prompt import context_message_text, order_note, render_bodies
from contextpilot_integrations.langchain.documents import relevance, shown_text

_EVERY_DOCUMENT = EngineConfig(dedup=False)


def format_context(
    context: Plan | Sequence[Document],
    *,
    note: NoteStyle = "compact",
    document_prompt: BasePromptTemplate[str] | None = None,
) -> str:
    """Return a context as text: labelled blocks, each in a fence that its text cannot close, and the note last.

    For a plan this is its text, with its own note. For the documents of a `ContextPilotRetriever`
    (``retriever | format_context``) it is made here, in the style ``note``, and a document is shown as
    ``document_prompt`` has it, its text alone without. ``[Doc n]`` is the n-th document: see `sources_of`.

    Raises:
        ValueError: a document lacks a variable of the prompt.
    """
    if isinstance(context, Plan):
        return context.text
    bodies = [shown_text(document, document_prompt) for document in context]
    text, _ = render_bodies(bodies, _EVERY_DOCUMENT, estimate_tokens)
    best_first = relevance(context)
    moved = best_first != tuple(range(len(context)))
    words = order_note(note, [position + 1 for position in best_first], estimate_tokens) if moved else ""
    return context_message_text(text, words, "")


def create_contextpilot_prompt(instructions: str = "") -> ChatPromptTemplate:
    """Return a prompt for ``context``, ``input`` and, if there is one, ``chat_history``.

    Context, note and question stand in the user message, in this order; never in the system message, which holds
    ``instructions`` literally. It fits ``create_stuff_documents_chain`` and chains of your own.
    """
    head = [SystemMessage(instructions)] if instructions else []
    return ChatPromptTemplate.from_messages(
        [*head, ("placeholder", "{chat_history}"), ("human", "{context}\n\n{input}")]
    )
