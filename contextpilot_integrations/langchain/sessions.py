"""Which conversation a call belongs to, from what LangChain hands over."""

from collections.abc import Mapping
from typing import Any

from contextpilot_integrations import session


def session_of(
    config: Mapping[str, Any],
    *,
    explicit: Any = None,
    metadata: Mapping[str, Any] | None = None,
    fallback: str | None = None,
) -> str | None:
    """Return the session id; None is stateless.

    The order is that of `contextpilot_integrations.session.session_of`: ``explicit`` (an argument of the call),
    ``configurable`` and ``metadata`` of the config, ``metadata`` of the run, the ``with`` block, ``fallback`` (a
    field).
    """
    configs = config.get("configurable"), config.get("metadata"), metadata
    return session.session_of(argument=explicit, configs=configs, fields=(fallback,))
