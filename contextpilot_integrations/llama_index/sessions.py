"""Which conversation a call belongs to: LlamaIndex passes no parameter for it."""

from collections.abc import Mapping
from typing import Any

from llama_index_instrumentation.dispatcher import active_instrument_tags

from contextpilot_integrations.session import current_session

TAGS = ("session_id", "thread_id", "conversation_id")


def find_session(session_id: str | None, memory: Any) -> str | None:
    """Return the first session that is named, None (stateless) where none is.

    In this order: ``contextpilot_integrations.session``, LlamaIndex's ``instrument_tags``, ``session_id``, and the
    ``session_id`` of a memory.
    """
    named = (current_session(), *_tagged(active_instrument_tags.get()), session_id, getattr(memory, "session_id", None))
    return next((str(name) for name in named if name not in (None, "")), None)


def _tagged(tags: Mapping[str, Any]) -> list[Any]:
    return [tags.get(name) for name in TAGS]
