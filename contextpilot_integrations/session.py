"""Which session a call belongs to; names it for everything called inside, where no parameter can carry the name."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from contextpilot_core import RequestError, RequestTypeError

SESSION_KEYS = ("session_id", "thread_id", "conversation_id")
"""Under these names frameworks' configs carry a session, the first that is given."""

_current: ContextVar[str | None] = ContextVar("contextpilot_session", default=None)


def current_session() -> str | None:
    """Return the innermost session id of this thread or task; None is stateless."""
    return _current.get()


def session_of(
    *, argument: Any = None, configs: Iterable[Mapping[str, Any] | None] = (), fields: Iterable[Any] = ()
) -> str | None:
    """Return the session of a call, the same way everywhere; None is stateless, never a session that all share.

    The first that names one counts: the ``argument`` of the call, what the framework's ``configs`` say under
    `SESSION_KEYS`, the ``with`` block of `session`, and the ``fields`` of the object that is called.
    """
    named = (config.get(key) for config in configs if config for key in SESSION_KEYS)
    for value in (argument, *named, current_session(), *fields):
        if value is not None and value != "":
            return str(value)
    return None


@contextmanager
def session(session_id: str) -> Iterator[str]:
    """Name the session of all calls inside the ``with`` block; what a call or its config says stands above it.

        with session("user-17"):
            client.chat(blocks, "And the second one?")

    Raises:
        RequestTypeError: ``session_id`` is no str.
        RequestError: ``session_id`` is empty.
    """
    if not isinstance(session_id, str):
        raise RequestTypeError(f"session_id must be a str, got {type(session_id).__name__}; convert it with str()")
    if not session_id:
        raise RequestError("session_id='' is empty; give a name, or leave the with block out for a stateless call")
    token = _current.set(session_id)
    try:
        yield session_id
    finally:
        _current.reset(token)
