"""Model servers: a client that plans what it sends, cached-token reports, and a small server of our own.

Names are loaded when first used, so that importing one part never asks for the packages of another.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextpilot_integrations.serving.chat import Tenants, Usage, UsageSummary, read_usage, summarize
    from contextpilot_integrations.serving.client import (
        AsyncChatStream,
        AsyncContextPilotClient,
        AsyncReplicaRouter,
        ChatResult,
        ChatStream,
        ContextPilotClient,
        ReplicaRouter,
        ReplicaStatus,
    )
    from contextpilot_integrations.serving.events import EventStatus, KVEventSubscriber
    from contextpilot_integrations.serving.local import LocalEngine
    from contextpilot_integrations.serving.metrics import EngineMetrics
    from contextpilot_integrations.serving.tokens import (
        HuggingFaceTokens,
        PromptTokenizer,
        ServerTokens,
        read_token_ids,
    )

_HOMES = {
    "AsyncChatStream": "client",
    "AsyncContextPilotClient": "client",
    "AsyncReplicaRouter": "client",
    "ChatResult": "client",
    "ChatStream": "client",
    "ContextPilotClient": "client",
    "EngineMetrics": "metrics",
    "EventStatus": "events",
    "HuggingFaceTokens": "tokens",
    "KVEventSubscriber": "events",
    "LocalEngine": "local",
    "PromptTokenizer": "tokens",
    "ReplicaRouter": "client",
    "ReplicaStatus": "client",
    "ServerTokens": "tokens",
    "Tenants": "chat",
    "Usage": "chat",
    "UsageSummary": "chat",
    "read_token_ids": "tokens",
    "read_usage": "chat",
    "summarize": "chat",
}

__all__ = [
    "AsyncChatStream",
    "AsyncContextPilotClient",
    "AsyncReplicaRouter",
    "ChatResult",
    "ChatStream",
    "ContextPilotClient",
    "EngineMetrics",
    "EventStatus",
    "HuggingFaceTokens",
    "KVEventSubscriber",
    "LocalEngine",
    "PromptTokenizer",
    "ReplicaRouter",
    "ReplicaStatus",
    "ServerTokens",
    "Tenants",
    "Usage",
    "UsageSummary",
    "read_token_ids",
    "read_usage",
    "summarize",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
