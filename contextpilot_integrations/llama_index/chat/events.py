"""The figures of a chat's answers as an event of LlamaIndex's instrumentation."""

from typing import Literal

from llama_index.core.instrumentation.events import BaseEvent
from pydantic import ConfigDict


class TurnEvent(BaseEvent):
    """Sent after every answer of a `ContextPilotChatEngine`; the fields are those of `TurnFigures`."""

    request_id: str
    plan_seconds: float
    prompt_tokens: int | None
    predicted: int | None
    reported: int | None
    hit_rate: float | None
    source: Literal["events", "estimate"]
    drift: float | None
    live_contexts: int
    evictions: int

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this."""
        return "ContextPilotTurnEvent"
