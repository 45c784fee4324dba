"""Model servers: a client that plans what it sends, cached-token reports, and a small server of our own.

Names are loaded when first used, so that importing one part never asks for the packages of another.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextpilot_integrations.serving.client import AsyncContextPilotClient, ContextPilotClient
    from contextpilot_integrations.serving.event_feed import EventStatus
    from contextpilot_integrations.serving.events import KVEventSubscriber
    from contextpilot_integrations.serving.local import LocalEngine
    from contextpilot_integrations.serving.metrics import EngineMetrics
    from contextpilot_integrations.serving.replicas import ReplicaStatus
    from contextpilot_integrations.serving.routing import AsyncReplicaRouter, ReplicaRouter
    from contextpilot_integrations.serving.streams import AsyncChatStream, ChatStream
    from contextpilot_integrations.serving.tenants import Tenants
    from contextpilot_integrations.serving.token_sources import HuggingFaceTokens, ServerTokens, read_token_ids
    from contextpilot_integrations.serving.tokenizers import PromptTokenizer
    from contextpilot_integrations.serving.turn import ChatResult
    from contextpilot_integrations.serving.usage import Usage, UsageSummary, read_usage, summarize

_HOMES = {
    "AsyncChatStream": "streams",
    "AsyncContextPilotClient": "client",
    "AsyncReplicaRouter": "routing",
    "ChatResult": "turn",
    "ChatStream": "streams",
    "ContextPilotClient": "client",
    "EngineMetrics": "metrics",
    "EventStatus": "event_feed",
    "HuggingFaceTokens": "token_sources",
    "KVEventSubscriber": "events",
    "LocalEngine": "local",
    "PromptTokenizer": "tokenizers",
    "ReplicaRouter": "routing",
    "ReplicaStatus": "replicas",
    "ServerTokens": "token_sources",
    "Tenants": "tenants",
    "Usage": "usage",
    "UsageSummary": "usage",
    "read_token_ids": "token_sources",
    "read_usage": "usage",
    "summarize": "usage",
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
