"""KV cache events over ZeroMQ."""

from contextpilot_integrations.serving.events.feed import EventStatus
from contextpilot_integrations.serving.events.subscriber import KVEventSubscriber

__all__ = ["EventStatus", "KVEventSubscriber"]
