"""LangChain: swap-in retriever and compressor, agent middleware, and a chat that never sends a text twice.

``langchain-core`` is all it needs (extra ``langchain``), but for the middleware (extra ``langchain-agents``). Names are
loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from contextpilot_integrations.extras import load

if TYPE_CHECKING:
    from contextpilot_integrations.langchain.agent.middleware import ContextPilotMiddleware
    from contextpilot_integrations.langchain.agent.tool import create_contextpilot_retriever_tool
    from contextpilot_integrations.langchain.chat.chat import ContextPilotChat, create_contextpilot_chat
    from contextpilot_integrations.langchain.compressor import ContextPilotCompressor, reorder_documents
    from contextpilot_integrations.langchain.prompts import create_contextpilot_prompt, format_context
    from contextpilot_integrations.langchain.retriever import ContextPilotRetriever

_HOMES = {
    "ContextPilotChat": "chat.chat",
    "ContextPilotCompressor": "compressor",
    "ContextPilotMiddleware": "agent.middleware",
    "ContextPilotRetriever": "retriever",
    "create_contextpilot_chat": "chat.chat",
    "create_contextpilot_prompt": "prompts",
    "create_contextpilot_retriever_tool": "agent.tool",
    "format_context": "prompts",
    "reorder_documents": "compressor",
}

__all__ = [
    "ContextPilotChat",
    "ContextPilotCompressor",
    "ContextPilotMiddleware",
    "ContextPilotRetriever",
    "create_contextpilot_chat",
    "create_contextpilot_prompt",
    "create_contextpilot_retriever_tool",
    "format_context",
    "reorder_documents",
]

load("langchain_core", extra="langchain")


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
