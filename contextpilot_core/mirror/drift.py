"""Predicted against reported cached tokens: when they stay far apart, the view is wrong."""

from collections import deque


class DriftMonitor:
    """Judges the last ``window`` requests: ``alarm`` is raised when most were overestimated, lowered when few are.

    Requests that run at the same time are often served better than was predicted; only when nearly all of them are
    served more than twice as well, the view misses what there is, and that raises the alarm as well.
    """

    def __init__(self, window: int = 20) -> None:
        self._differences: deque[int] = deque(maxlen=window)
        self._over: deque[bool] = deque(maxlen=window)
        self._under: deque[bool] = deque(maxlen=window)
        self.alarm = False

    @property
    def mean(self) -> float | None:
        """Mean of predicted minus reported tokens over the window; None before the first request."""
        return sum(self._differences) / len(self._differences) if self._differences else None

    def add(self, predicted: int, reported: int, *, tolerance: int) -> bool:
        """Judge one request; ``tolerance`` in tokens. Returns whether the alarm changed."""
        self._differences.append(predicted - reported)
        self._over.append(predicted - reported > tolerance)
        self._under.append(reported - predicted > max(tolerance, predicted))
        seen, over, under, window = len(self._over), sum(self._over), sum(self._under), self._over.maxlen or 0
        before = self.alarm
        if self.alarm:
            self.alarm = not (seen == window and 10 * over <= window and 2 * under <= window)
        else:
            self.alarm = (2 * seen >= window and 2 * over > seen) or 10 * under >= 9 * window
        if self.alarm and not before:
            self._over.clear()  # it is lowered by what comes from now on
            self._under.clear()
        return self.alarm != before
