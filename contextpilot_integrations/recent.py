"""The things used last: a bounded mapping for what may be forgotten."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from contextpilot_core.mirror import ProcessLock

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MOST_GROUPS = 1_000


class Recent(Generic[K, T]):
    """Values by key, the least recently used forgotten first; thread-safe.

    ``in_use`` names keys that are not forgotten now; there may be more than ``limit`` of them. ``group``: of what a key
    is one, its tenant for example: ``limit`` counts within each group, so none makes another forget. Of groups the
    1,000 used last are kept.
    """

    def __init__(
        self,
        limit: int,
        in_use: Callable[[K], bool] = lambda key: False,
        group: Callable[[K], Hashable] = lambda key: None,
    ) -> None:
        self._limit, self._in_use, self._group = limit, in_use, group
        self._groups: OrderedDict[Hashable, OrderedDict[K, T]] = OrderedDict()
        self._lock = ProcessLock()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._groups.values()))

    def peek(self, key: K) -> T | None:
        """Return a value, None for none; that is no use of it."""
        with self._lock:
            values = self._groups.get(self._group(key))
            return None if values is None else values.get(key)

    def get(self, key: K, make: Callable[[], T]) -> T:
        """Return a value; what ``make`` returns, outside the lock, where there is none."""
        with self._lock:
            values = self._groups.get(self._group(key))
            if values is not None and key in values:
                return self._kept(key, values[key])
        value = make()
        with self._lock:
            values = self._groups.get(self._group(key), OrderedDict())
            return self._kept(key, values.get(key, value))

    def put(self, key: K, value: T) -> None:
        """Keep a value, in place of an earlier one."""
        with self._lock:
            self._kept(key, value)

    def pop(self, key: K) -> T | None:
        """Forget a value and return it, None for none."""
        with self._lock:
            group = self._group(key)
            values = self._groups.get(group)
            if values is None:
                return None
            value = values.pop(key, None)
            if not values:
                del self._groups[group]
            return value

    def _kept(self, key: K, value: T) -> T:
        group = self._group(key)
        values = self._groups.setdefault(group, OrderedDict())
        values[key] = value
        values.move_to_end(key)
        self._groups.move_to_end(group)
        for oldest in list(islice(values, max(0, len(values) - self._limit))):
            if oldest != key and not self._in_use(oldest):
                del values[oldest]
        for other in list(islice(self._groups, max(0, len(self._groups) - _MOST_GROUPS))):
            if other != group and not any(map(self._in_use, self._groups[other])):
                del self._groups[other]
        return value
