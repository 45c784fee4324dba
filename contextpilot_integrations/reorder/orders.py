"""The last order of each session."""

from operator import itemgetter

from contextpilot_core.checks import whole_number
from contextpilot_core.types import OnePerProcess
from contextpilot_integrations.recent import Recent


class OrderMemory(OnePerProcess):
    """The last order of each session, the least recently used of its namespace forgotten first; thread-safe."""

    def __init__(self, max_sessions: int = 1_000) -> None:
        """Keep the orders of at most ``max_sessions`` sessions per namespace. Raises `ConfigError`."""
        limit = whole_number("max_sessions", max_sessions, "1_000 is usual")
        self._orders: Recent[tuple[str, str], tuple[bytes, ...]] = Recent(limit, group=itemgetter(0))

    def last(self, namespace: str, session_id: str) -> tuple[bytes, ...]:
        """Return the digests of the session's last documents in their order; none for an unknown session."""
        return self._orders.peek((namespace, session_id)) or ()

    def keep(self, namespace: str, session_id: str, order: tuple[bytes, ...]) -> None:
        """Remember the order that a session was given; of two calls at once, the later one's."""
        self._orders.put((namespace, session_id), order)

    def forget(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session (a new conversation under its name). Returns whether there was one."""
        return self._orders.pop((namespace, session_id)) is not None

    def __len__(self) -> int:
        return len(self._orders)
