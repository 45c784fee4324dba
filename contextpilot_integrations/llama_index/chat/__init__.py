"""The chat engine."""

from contextpilot_integrations.llama_index.chat.engine import ContextPilotChatEngine
from contextpilot_integrations.llama_index.chat.events import TurnEvent
from contextpilot_integrations.llama_index.chat.history import question_of
from contextpilot_integrations.llama_index.chat.responses import ContextPilotResponse, ContextPilotStreamingResponse

__all__ = [
    "ContextPilotChatEngine",
    "ContextPilotResponse",
    "ContextPilotStreamingResponse",
    "TurnEvent",
    "question_of",
]
