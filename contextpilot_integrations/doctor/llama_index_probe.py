"""Runs a LlamaIndex engine and listens to its instrumentation."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index_instrumentation import get_dispatcher

from contextpilot_integrations.doctor.recording import Recorder

_running: ContextVar[Recorder | None] = ContextVar("contextpilot_probe", default=None)


class _Listener(BaseEventHandler):
    """Hands events to the recorder of the probe that runs here; events of other threads and tasks are not its own."""

    recorder: Any
    in_chat: int = 0

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex asks for."""
        return "ContextPilotProbe"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record prompts and retrieved nodes. A chat that is served by a completion inside counts once."""
        recorder: Recorder = self.recorder
        if _running.get() is not recorder:
            return
        if isinstance(event, LLMChatStartEvent):
            self.in_chat += 1
            tools = event.additional_kwargs.get("tools") or ()
            recorder.prompt([_message(m) for m in event.messages], [tool for tool in tools if isinstance(tool, dict)])
        elif isinstance(event, LLMChatEndEvent):
            self.in_chat -= 1
        elif isinstance(event, LLMCompletionStartEvent) and not self.in_chat:
            recorder.prompt(event.prompt)
        elif isinstance(event, RetrievalEndEvent):
            for found in event.nodes:
                recorder.document(found.node.get_content())


def run(engine: Any, query: str, recorder: Recorder) -> None:
    """Ask a query engine, or send a chat engine a message, and record what happens."""
    with _listening(recorder):
        response = engine.query(query) if hasattr(engine, "query") else engine.chat(query)
        str(response)  # a streamed answer is asked for when it is read


@contextmanager
def _listening(recorder: Recorder) -> Iterator[None]:
    handlers = get_dispatcher().event_handlers
    listener = _Listener(recorder=recorder)
    token = _running.set(recorder)
    handlers.append(listener)
    try:
        yield
    finally:
        # Not remove(): it asks for equality, and handlers with the same fields are equal.
        handlers[:] = [handler for handler in handlers if handler is not listener]
        _running.reset(token)


def _message(message: ChatMessage) -> dict[str, Any]:
    if all(block.block_type == "text" for block in message.blocks):
        content: Any = message.content or ""
    else:
        content = [
            {"type": "text", "text": block.text} if block.block_type == "text" else block.model_dump(mode="json")
            for block in message.blocks
        ]
    calls = message.additional_kwargs.get("tool_calls") or ()
    return {
        "role": message.role.value,
        "content": content,
        "tool_calls": [call if isinstance(call, dict) else call.model_dump() for call in calls],
    }
