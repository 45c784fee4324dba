"""The things used last: a bounded mapping for what may be forgotten."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from contextpilot_core.mirror import ProcessLock

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Recent(Generic[K, T]):
    """Values by key, the least recently used forgotten first; thread-safe.

    ``in_use`` names keys that are not forgotten now; there may be more than ``limit`` of them.
    """

    def __init__(self, limit: int, in_use: Callable[[K], bool] = lambda key: False) -> None:
        self._limit, self._in_use = limit, in_use
        self._values: OrderedDict[K, T] = OrderedDict()
        self._lock = ProcessLock()

    def __len__(self) -> int:
        return len(self._values)

    def peek(self, key: K) -> T | None:
        """Return a value, None for none; that is no use of it."""
        with self._lock:
            return self._values.get(key)

    def get(self, key: K, make: Callable[[], T]) -> T:
        """Return a value; what ``make`` returns, outside the lock, where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            return self._kept(key, self._values.get(key, value))

    def put(self, key: K, value: T) -> None:
        """Keep a value, in place of an earlier one."""
        with self._lock:
            self._kept(key, value)

    def pop(self, key: K) -> T | None:
        """Forget a value and return it, None for none."""
        with self._lock:
            return self._values.pop(key, None)

    def _kept(self, key: K, value: T) -> T:
        self._values[key] = value
        self._values.move_to_end(key)
        for oldest in list(islice(self._values, max(0, len(self._values) - self._limit))):
            if oldest != key and not self._in_use(oldest):
                del self._values[oldest]
        return value
