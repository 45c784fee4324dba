"""The last order of each session."""

from collections import OrderedDict
from threading import Lock
from typing import Any

from contextpilot_core.checks import whole_number


class OrderMemory:
    """The last order of each session, the least recently used forgotten first; thread-safe.

    Frameworks copy their objects; the copies share one memory.
    """

    def __init__(self, max_sessions: int = 1_000) -> None:
        """Keep the orders of at most ``max_sessions`` sessions. Raises `ConfigError`."""
        self._limit = whole_number("max_sessions", max_sessions, "1000 is usual")
        self._orders: OrderedDict[tuple[str, str], tuple[bytes, ...]] = OrderedDict()
        self._lock = Lock()

    def last(self, namespace: str, session_id: str) -> tuple[bytes, ...]:
        """Return the digests of the session's last documents in their order; none for an unknown session."""
        with self._lock:
            return self._orders.get((namespace, session_id), ())

    def keep(self, namespace: str, session_id: str, order: tuple[bytes, ...]) -> None:
        """Remember the order that a session was given; of two calls at once, the later one's."""
        with self._lock:
            self._orders[namespace, session_id] = order
            self._orders.move_to_end((namespace, session_id))
            if len(self._orders) > self._limit:
                self._orders.popitem(last=False)

    def forget(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session (a new conversation under its name). Returns whether there was one."""
        with self._lock:
            return self._orders.pop((namespace, session_id), None) is not None

    def __len__(self) -> int:
        return len(self._orders)

    def __copy__(self) -> "OrderMemory":
        """Return the memory itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "OrderMemory":
        """Return the memory itself."""
        return self

    def __reduce__(self) -> str:
        """Refuse to be pickled: the state would be lost silently."""
        raise TypeError("an OrderMemory cannot be pickled: its state would be lost; make one per process")
