"""Chat clients around an OpenAI client, for one server or several."""

from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.serving.client.replicas import OpenAIClient, ReplicaStatus
from contextpilot_integrations.serving.client.router import AsyncReplicaRouter, ReplicaRouter
from contextpilot_integrations.serving.client.streams import AsyncChatStream, ChatStream
from contextpilot_integrations.serving.client.turn import ChatResult, may_refuse

__all__ = [
    "AsyncChatStream",
    "AsyncContextPilotClient",
    "AsyncReplicaRouter",
    "ChatResult",
    "ChatStream",
    "ContextPilotClient",
    "OpenAIClient",
    "ReplicaRouter",
    "ReplicaStatus",
    "may_refuse",
]
