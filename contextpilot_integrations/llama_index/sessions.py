"""Which conversation a call belongs to: LlamaIndex passes no parameter for it."""

from typing import Any

from llama_index_instrumentation.dispatcher import active_instrument_tags

from contextpilot_integrations.session import session_of


def find_session(session_id: str | None, memory: Any) -> str | None:
    """Return the first session that is named, None (stateless) where none is.

    The order is that of `contextpilot_integrations.session.session_of`: LlamaIndex's ``instrument_tags``, the ``with``
    block, ``session_id`` (a field), and the ``session_id`` of a memory.
    """
    return session_of(configs=(active_instrument_tags.get(),), fields=(session_id, getattr(memory, "session_id", None)))
