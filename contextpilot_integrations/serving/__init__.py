"""Model servers: clients that plan what they send, cached-token reports, and a small server of our own.

`EngineMetrics` is loaded when first used: it needs the extra ``metrics``.
"""

from typing import TYPE_CHECKING

from contextpilot_integrations.serving.chat import Tenants, Usage, read_usage
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
from contextpilot_integrations.serving.tokens import HuggingFaceTokens, PromptTokenizer, ServerTokens, read_token_ids

if TYPE_CHECKING:
    from contextpilot_integrations.serving.metrics import EngineMetrics

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
    "read_token_ids",
    "read_usage",
]


def __getattr__(name: str) -> object:
    if name != "EngineMetrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contextpilot_integrations.serving.metrics import EngineMetrics

    return EngineMetrics


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
