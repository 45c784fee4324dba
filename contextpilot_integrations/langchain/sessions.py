"""Which conversation a call belongs to, from what LangChain hands over."""

from collections.abc import Mapping
from typing import Any

from contextpilot_integrations.session import current_session

SESSION_KEYS = ("session_id", "thread_id", "conversation_id")


def session_of(
    config: Mapping[str, Any],
    *,
    explicit: Any = None,
    metadata: Mapping[str, Any] | None = None,
    fallback: str | None = None,
) -> str | None:
    """Return the session id; None is stateless, never a session that all share.

    The first that says one counts: ``explicit`` (an argument of the call), ``configurable`` and ``metadata`` of the
    config, ``metadata`` of the run, the session of ``contextpilot_integrations.session``, ``fallback`` (a field).
    """
    places = (config.get("configurable"), config.get("metadata"), metadata)
    named = (place.get(key) for place in places if place for key in SESSION_KEYS)
    for value in (explicit, *named, current_session(), fallback):
        if value is not None and value != "":
            return str(value)
    return None
