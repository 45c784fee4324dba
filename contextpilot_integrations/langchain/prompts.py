"""Prompts in which the context stands before the question, and the note between them."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate

from contextpilot_core import EngineConfig, Plan, estimate_tokens
from contextpilot_core.checks import kind_of
from contextpilot_core.config import NoteStyle
from contextpilot_core.prompt import context_message_text, order_note, render_bodies
from contextpilot_integrations.langchain.documents import relevance, shown_text

_EVERY_DOCUMENT = EngineConfig(dedup=False)


def format_context(
    context: Plan | Sequence[Document],
    *,
    note: NoteStyle = "none",
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


class _ContextFirst(ChatPromptTemplate):
    """Puts the context into the first user message, also where that is one of the history.

    The next prompt has another context and a longer history. Behind the history nothing of a context could be shared
    with it; before the history everything that is alike is. User and assistant still take turns.
    """

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return that LangChain cannot make one of its own serialized form."""
        return False

    def format_messages(self, **kwargs: Any) -> list[BaseMessage]:
        """Return the messages."""
        return self._moved(super().format_messages(**kwargs), kwargs)

    async def aformat_messages(self, **kwargs: Any) -> list[BaseMessage]:
        """Return the messages."""
        return self._moved(await super().aformat_messages(**kwargs), kwargs)

    def _moved(self, messages: list[BaseMessage], given: Mapping[str, Any]) -> list[BaseMessage]:
        values = self._merge_partial_and_user_variables(**given)
        *earlier, last = messages
        place = next((place for place, each in enumerate(earlier) if not isinstance(each, SystemMessage)), None)
        if place is None or not values["context"]:
            return messages
        first = _with_context(str(values["context"]), earlier[place])
        return [
            *earlier[:place],
            *first,
            *earlier[place + 1 :],
            last.model_copy(update={"content": str(values["input"])}),
        ]


def _with_context(context: str, message: BaseMessage) -> list[BaseMessage]:
    """Return a message with the context before it: in it where it is a user's."""
    if not isinstance(message, HumanMessage):
        return [HumanMessage(context), message]
    content = message.content
    if isinstance(content, str):
        return [message.model_copy(update={"content": f"{context}\n\n{content}"})]
    return [message.model_copy(update={"content": [{"type": "text", "text": context}, *content]})]


def create_contextpilot_prompt(instructions: str = "") -> ChatPromptTemplate:
    """Return a prompt for ``context``, ``input`` and, if there is one, ``chat_history``.

    The context (with its note, see `format_context`) stands at the start of the first user message, the question in the
    last; never in the system message, which holds ``instructions`` literally. The history is that of questions and
    answers alone. It fits ``create_stuff_documents_chain`` and chains of your own.

    Raises:
        ConfigError: ``instructions`` is no str.
    """
    kind_of("instructions", instructions, str, "a str: the system message, '' for none")
    head = [SystemMessage(instructions)] if instructions else []
    return _ContextFirst.from_messages([*head, ("placeholder", "{chat_history}"), ("human", "{context}\n\n{input}")])
