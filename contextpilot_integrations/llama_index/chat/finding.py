"""What a chat engine looks for, and finds: the question made to stand alone, the retriever, the postprocessors."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.generic_utils import messages_to_history_str
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle

from contextpilot_core import ConfigError, RequestTypeError
from contextpilot_core.checks import able
from contextpilot_integrations.llama_index.chat.history import as_asked

CondenseQuestion: TypeAlias = str | BasePromptTemplate | Callable[[str, list[ChatMessage]], str | Awaitable[str]]
"""A prompt with ``chat_history`` and ``question``, or what makes a question of the question and the history."""


@dataclass(frozen=True)
class Found:
    """The words that were looked for, and the nodes as the postprocessors left them."""

    query: str
    nodes: list[NodeWithScore]


class Finder:
    """Looks for a question in its conversation."""

    def __init__(
        self,
        retriever: BaseRetriever,
        postprocessors: Sequence[BaseNodePostprocessor],
        condense: CondenseQuestion | None,
        llm: LLM,
    ) -> None:
        """Use ``llm`` where ``condense`` is a prompt. Raises `ConfigError`: the prompt lacks a variable."""
        able("retriever", retriever, ("retrieve", "aretrieve"), "a retriever of LlamaIndex")
        self._retriever, self._postprocessors, self._llm = retriever, list(postprocessors), llm
        self._condense = PromptTemplate(condense) if isinstance(condense, str) else condense
        if isinstance(self._condense, BasePromptTemplate):
            mapped = self._condense.template_var_mappings or {}
            for name in ("chat_history", "question"):
                if mapped.get(name, name) not in self._condense.template_vars:
                    raise ConfigError(
                        f"condense_question has no variable {name!r}; it must hold chat_history and question, as "
                        "LlamaIndex's DEFAULT_CONDENSE_PROMPT_TEMPLATE does"
                    )
        elif self._condense is not None and not callable(self._condense):
            raise ConfigError(
                f"condense_question is a {type(condense).__name__}; give a prompt, or a callable that takes the "
                "question and the history"
            )

    def find(self, question: str, history: Sequence[ChatMessage]) -> Found:
        """Find nodes for a question. Raises `RequestTypeError`: what condenses gave no text."""
        query = self._standing_alone(question, [as_asked(message) for message in history])
        nodes = self._retriever.retrieve(query)
        for postprocessor in self._postprocessors:
            nodes = postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(query))
        return Found(query, nodes)

    async def afind(self, question: str, history: Sequence[ChatMessage]) -> Found:
        """Find nodes for a question, as `find`."""
        query = await self._astanding_alone(question, [as_asked(message) for message in history])
        nodes = await self._retriever.aretrieve(query)
        for postprocessor in self._postprocessors:
            nodes = await postprocessor.apostprocess_nodes(nodes, query_bundle=QueryBundle(query))
        return Found(query, nodes)

    def _standing_alone(self, question: str, history: list[ChatMessage]) -> str:
        condense = self._condense
        if condense is None or not history:
            return question
        if isinstance(condense, BasePromptTemplate):
            told = messages_to_history_str(history)
            return self._llm.predict(condense, chat_history=told, question=question).strip() or question
        return _checked(condense(question, history)) or question

    async def _astanding_alone(self, question: str, history: list[ChatMessage]) -> str:
        condense = self._condense
        if condense is None or not history:
            return question
        if isinstance(condense, BasePromptTemplate):
            told = messages_to_history_str(history)
            return (await self._llm.apredict(condense, chat_history=told, question=question)).strip() or question
        made = await asyncio.to_thread(condense, question, history)  # it may wait for a model, without being async
        return _checked(await made if isawaitable(made) else made) or question


def _checked(question: object) -> str:
    if isinstance(question, str):
        return question.strip()
    if isawaitable(question):
        getattr(question, "close", lambda: None)()
    raise RequestTypeError(
        f"condense_question returned a {type(question).__name__}, not a str; where it is asynchronous, ask with achat "
        "or astream_chat"
    )
