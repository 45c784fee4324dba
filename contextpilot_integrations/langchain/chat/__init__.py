"""The chat over retrieved documents."""

from contextpilot_integrations.langchain.chat.chat import ContextPilotChat, create_contextpilot_chat

__all__ = ["ContextPilotChat", "create_contextpilot_chat"]
