"""LlamaIndex: a node postprocessor for pipelines that exist, and a chat engine that keeps its context."""

from contextpilot_integrations import extras

extras.load("llama_index.core", extra="llama-index")

from contextpilot_integrations.llama_index.chat.engine import ContextPilotChatEngine  # noqa: E402
from contextpilot_integrations.llama_index.chat.events import TurnEvent  # noqa: E402
from contextpilot_integrations.llama_index.chat.history import question_of  # noqa: E402
from contextpilot_integrations.llama_index.chat.responses import (  # noqa: E402
    ContextPilotResponse,
    ContextPilotStreamingResponse,
)
from contextpilot_integrations.llama_index.postprocessor import ContextPilotPostprocessor  # noqa: E402

__all__ = [
    "ContextPilotChatEngine",
    "ContextPilotPostprocessor",
    "ContextPilotResponse",
    "ContextPilotStreamingResponse",
    "TurnEvent",
    "question_of",
]
