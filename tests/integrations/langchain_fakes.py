"""Fakes at the edges of LangChain (a model that records its prompts, a retriever of fixed lists) and measures."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from pydantic import Field


def text_of(name: str) -> str:
    """About 260 characters that share no sentence with another document's."""
    return " ".join(f"Fact {number} about {name} is now kept in drawer {name}{number * 7}." for number in range(6))


def document(name: str, **metadata: Any) -> Document:
    return Document(id=f"id-{name}", page_content=text_of(name), metadata={"source": f"{name}.md", **metadata})


def result(*documents: str | Document, content: str | None = None, call: str = "c", **fields: Any) -> ToolMessage:
    """What a retrieval tool returned: documents, and the content that shows them."""
    found = [document(each) if isinstance(each, str) else each for each in documents]
    shown = "\n\n".join(each.page_content for each in found) if content is None else content
    return ToolMessage(shown, tool_call_id=call, artifact=found, **fields)


def contents(messages: list[BaseMessage]) -> list[Any]:
    return [message.content for message in messages]


QUERIES = {"A": ("D1", "D2", "D3", "D4"), "B": ("D2", "D1", "D5", "D3")}
IDEAL = ("D1", "D2", "D3", "D4", "D5")
"""An order in which both queries share all that they can."""


def query(name: str) -> str:
    return f"{name} what is known?"


class Lists(BaseRetriever):
    """Returns fixed lists by the first word of the query."""

    lists: dict[str, tuple[str, ...]] = Field(default_factory=lambda: dict(QUERIES))
    scores: bool = False
    ideal: bool = False
    seen: list[Any] = Field(default_factory=list)

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        self.seen.append(kwargs)
        name = query.split()[0]
        names = self.lists[name] if name in self.lists else tuple(name.split(","))
        found = []
        for rank, each in enumerate(names):
            score = {"score": round(0.9 - 0.1 * rank - 0.003 * ord(name[0]) % 0.1, 3)} if self.scores else {}
            found.append(document(each, **score))
        return sorted(found, key=lambda d: IDEAL.index(d.id[3:])) if self.ideal else found


class Recorder(BaseChatModel):
    """Records every prompt; answers by ``answer(messages)``, or with ``ok``."""

    answer: Callable[[list[BaseMessage]], AIMessage] | None = None
    prompts: list[list[BaseMessage]] = Field(default_factory=list)
    options: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Recorder":
        return self

    def _reply(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        self.prompts.append([message.model_copy(deep=True) for message in messages])
        self.options.append(options)
        return self.answer(messages) if self.answer else AIMessage("ok")

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages, kwargs))])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages, kwargs)
        for word in str(reply.content).split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))


def chatml(messages: list[BaseMessage]) -> str:
    """Render a prompt as a chat template would."""
    roles = {"human": "user", "ai": "assistant"}
    turns = []
    for message in messages:
        calls = "".join(f"<call>{call['name']}{call['args']}" for call in getattr(message, "tool_calls", ()))
        turns.append(f"<|im_start|>{roles.get(message.type, message.type)}\n{message.content}{calls}<|im_end|>\n")
    return "".join(turns)


def common(first: str, second: str) -> int:
    """Characters that two prompts share from their start."""
    return len(os.path.commonprefix([first, second]))


def names_in(text: str) -> set[str]:
    """The documents whose whole text stands in ``text``."""
    return {f"D{n}" for n in range(1, 40) if text_of(f"D{n}") in text}
