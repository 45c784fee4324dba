"""LlamaIndex with fakes at its edges: a model that records its prompts, a retriever with a table, prompts as text."""

import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import PrivateAttr


def document(name: str, length: int = 260) -> str:
    """A text of which no part says anything about another document's."""
    return (f"{name} says: " + " ".join(f"{name.lower()}{n} is {n * n + len(name)}," for n in range(60)))[:length]


D1, D2, D3, D4, D5 = (document(f"D{n}") for n in range(1, 6))
TABLE = {"qA": [D1, D2, D3, D4], "qB": [D2, D1, D5, D3]}


class Recorder(CustomLLM):
    """Answers "answer 1", "answer 2", ...; or what ``reply`` says. Keeps what it was sent."""

    window: int = 100_000
    chat_model: bool = True
    _prompts: list[list[ChatMessage]] = PrivateAttr(default_factory=list)
    _reply: Callable[[list[ChatMessage]], str] | None = PrivateAttr(default=None)
    _raw: Any = PrivateAttr(default=None)

    def __init__(self, reply: Callable[[list[ChatMessage]], str] | None = None, raw: Any = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._reply, self._raw = reply, raw

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=self.window, is_chat_model=self.chat_model, num_output=0)

    @property
    def prompts(self) -> list[str]:
        """What was sent, as a chat template would write it."""
        return [chatml(messages) for messages in self._prompts]

    @property
    def messages(self) -> list[list[ChatMessage]]:
        return self._prompts

    def _answer(self, messages: Sequence[ChatMessage]) -> str:
        self._prompts.append(list(messages))
        return self._reply(list(messages)) if self._reply else f"answer {len(self._prompts)}"

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        text = self._answer(messages)
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), raw=self._raw)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        text = self._answer(messages)
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), raw=self._raw)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **options: Any) -> Generator[ChatResponse, None, None]:
        def chunks() -> Generator[ChatResponse, None, None]:
            yield from pieces(self._answer(messages))

        return chunks()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **options: Any) -> AsyncGenerator[ChatResponse, None]:
        async def chunks() -> AsyncGenerator[ChatResponse, None]:
            for piece in pieces(self._answer(messages)):
                yield piece

        return chunks()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
        return CompletionResponse(text=self._answer([ChatMessage(role=MessageRole.USER, content=prompt)]))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> Generator[CompletionResponse, None, None]:
        def chunks() -> Generator[CompletionResponse, None, None]:
            text = self._answer([ChatMessage(role=MessageRole.USER, content=prompt)])
            yield CompletionResponse(text=text, delta=text)

        return chunks()


def pieces(text: str) -> Generator[ChatResponse, None, None]:
    """A streamed answer."""
    said = ""
    for piece in re.findall(r"\S+\s*", text):
        said += piece
        yield ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=said), delta=piece)


class TableRetriever(BaseRetriever):
    """Finds what its table says about the first key that the question contains; ``make`` turns it into nodes."""

    def __init__(
        self,
        table: dict[str, Sequence[Any]] = TABLE,
        make: Callable[[str, int, Any], NodeWithScore] | None = None,
    ) -> None:
        super().__init__()
        self.table = dict(table)
        self.asked: list[str] = []
        self._make = make or (lambda query, rank, text: node(text, (9 - rank) / 10))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        self.asked.append(question)
        key = next((key for key in self.table if key in question), None)
        found = self.table[key] if key else ()
        return [
            item if isinstance(item, NodeWithScore) else self._make(key or "", rank, item)
            for rank, item in enumerate(found)
        ]


def node(text: str, score: float | None = None, **fields: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, **fields), score=score)


def uncopyable() -> dict[str, Any]:
    """Metadata of which nothing can be deep-copied."""
    return {"lock": threading.Lock(), "pages": (page for page in "ab"), "file": open(os.devnull), "shown": "word"}


def chatml(messages: Sequence[ChatMessage]) -> str:
    return "".join(f"<|im_start|>{message.role.value}\n{message.content}<|im_end|>\n" for message in messages)


def common(first: str, second: str) -> int:
    """Characters of the common prefix."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(map(len, (first, second)))
    )


def texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.get_content() for item in nodes]
