"""The chat engine."""

from contextpilot_integrations.llama_index.chat.engine import ContextPilotChatEngine
from contextpilot_integrations.llama_index.chat.events import TurnEvent
from contextpilot_integrations.llama_index.chat.history import question_of

__all__ = ["ContextPilotChatEngine", "TurnEvent", "question_of"]
