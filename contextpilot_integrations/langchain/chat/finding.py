"""What a chat looks for, and finds: the question made to stand alone, the retriever's documents, as blocks."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from types import NoneType
from typing import Any, TypeAlias

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor

from contextpilot_core import ConfigError, RequestTypeError
from contextpilot_core.checks import able, kind_of
from contextpilot_integrations.langchain.chat.history import entry_of, made_whole
from contextpilot_integrations.langchain.documents import DocumentBlock, as_block, by_relevance

Condense: TypeAlias = (
    Runnable[dict[str, Any], Any]
    | Callable[[str, list[BaseMessage]], str]
    | Callable[[str, list[BaseMessage]], Awaitable[str]]
)
"""Makes a question that stands alone: of ``input`` and ``chat_history``, or of the two as arguments."""


class Finder:
    """Looks for a question in its conversation; ``document_prompt`` says what a model is shown of a document."""

    def __init__(
        self,
        retriever: Runnable[str, list[Document]],
        condense: Condense | None = None,
        document_prompt: BasePromptTemplate[str] | None = None,
    ) -> None:
        """Condense nothing with None.

        Raises:
            ConfigError: an argument is of another type.
        """
        able("retriever", retriever, ("invoke", "ainvoke"), "a retriever of LangChain, or another Runnable")
        kind_of("document_prompt", document_prompt, (BasePromptTemplate, NoneType), "a PromptTemplate, or None")
        if condense is not None and not isinstance(condense, Runnable) and not callable(condense):
            raise ConfigError(
                f"condense_question is a {type(condense).__name__}; give a Runnable that takes input and chat_history, "
                "or a callable that takes the question and the history"
            )
        self._retriever, self._condense, self._prompt = retriever, condense, document_prompt

    def find(self, question: str, history: Sequence[BaseMessage], config: RunnableConfig) -> list[DocumentBlock]:
        """Return documents for a question, best first. Raises `RequestTypeError`: what condenses gave no text."""
        condense, asked = self._condense, question
        if condense is not None and history:
            said = [as_asked(message) for message in history]
            if isinstance(condense, Runnable):
                made = condense.invoke({"input": question, "chat_history": said}, config)
            else:
                made = condense(question, said)
            asked = _text(made) or question
        return self._blocks(self._retriever.invoke(asked, config))

    async def afind(self, question: str, history: Sequence[BaseMessage], config: RunnableConfig) -> list[DocumentBlock]:
        """Return documents for a question, as `find`."""
        condense, asked = self._condense, question
        if condense is not None and history:
            said = [as_asked(message) for message in history]
            if isinstance(condense, Runnable):
                made = await condense.ainvoke({"input": question, "chat_history": said}, config)
            else:  # it may wait for a model, without being asynchronous
                made = await run_in_executor(config, condense, question, said)
                made = await made if isawaitable(made) else made
            asked = _text(made) or question
        return self._blocks(await self._retriever.ainvoke(asked, config))

    def _blocks(self, documents: Sequence[Document]) -> list[DocumentBlock]:
        return [as_block(document, self._prompt) for document in by_relevance(documents)]


def as_asked(message: BaseMessage) -> BaseMessage:
    """Return the message without the documents that went along with a question of ours."""
    asked = entry_of(message).asked
    return made_whole(message) if asked is None else HumanMessage(asked.query, id=message.id)


def _text(made: object) -> str:
    """Return what a condenser made: a str, or the text of a message."""
    if isinstance(made, BaseMessage):
        made = made.text
    if isinstance(made, str):
        return str(made).strip()
    if isawaitable(made):
        getattr(made, "close", lambda: None)()
    raise RequestTypeError(
        f"condense_question returned a {type(made).__name__}, not a str or a message; where it is asynchronous, ask "
        "with ainvoke or astream"
    )
