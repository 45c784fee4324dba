"""LangChain: swap-in retriever and compressor, agent middleware, and a chat that never sends a text twice.

``langchain-core`` is all it needs (extra ``langchain``), but for the middleware (extra ``langchain-agents``), which is
loaded when first used.
"""

from typing import TYPE_CHECKING

from contextpilot_integrations.extras import load

load("langchain_core", extra="langchain")

from contextpilot_integrations.langchain.agent.tool import create_contextpilot_retriever_tool  # noqa: E402
from contextpilot_integrations.langchain.chat import ContextPilotChat, create_contextpilot_chat  # noqa: E402
from contextpilot_integrations.langchain.citations import sources_of  # noqa: E402
from contextpilot_integrations.langchain.compressor import ContextPilotCompressor, reorder_documents  # noqa: E402
from contextpilot_integrations.langchain.prompts import create_contextpilot_prompt, format_context  # noqa: E402
from contextpilot_integrations.langchain.retriever import ContextPilotRetriever  # noqa: E402

if TYPE_CHECKING:
    from contextpilot_integrations.langchain.agent.middleware import ContextPilotMiddleware

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
    "sources_of",
]


def __getattr__(name: str) -> object:
    if name != "ContextPilotMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contextpilot_integrations.langchain.agent.middleware import ContextPilotMiddleware

    return ContextPilotMiddleware


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
