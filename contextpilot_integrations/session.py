"""Names the session for everything called inside, where no parameter can carry the name."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from contextpilot_core import RequestError, RequestTypeError

_current: ContextVar[str | None] = ContextVar("contextpilot_session", default=None)


def current_session() -> str | None:
    """Return the innermost session id of this thread or task; None is stateless."""
    return _current.get()


@contextmanager
def session(session_id: str) -> Iterator[str]:
    """Name the session of all calls inside the ``with`` block; an explicit ``session_id`` of a call stands above it.

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
