"""The time of one engine."""

import math
from collections.abc import Callable
from contextlib import suppress

from contextpilot_core.checks import shown
from contextpilot_core.errors import ConfigError


class Clock:
    """Seconds that stand still during a call: the caller's clock is asked where one begins, before anything changes.

    So a clock that raises, or says what is no time, does not break off what has begun.
    """

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._now = 0.0

    def __call__(self) -> float:
        """Return what `ask` found."""
        return self._now

    def ask(self) -> float:
        """Ask the caller's clock.

        Raises:
            ConfigError: it returned no number, or none that is finite.
        """
        now = self._source()
        if not _is_time(now):
            raise ConfigError(f"clock returned {shown(now)}; it must return seconds, a number that is finite")
        self._now = float(now)
        return self._now

    def try_to_ask(self) -> None:
        """Ask the caller's clock where nobody is there to be told that it failed: then it is as late as it was."""
        with suppress(Exception):
            self.ask()


def _is_time(now: object) -> bool:
    try:
        return isinstance(now, (int, float)) and not isinstance(now, bool) and math.isfinite(now)
    except OverflowError:  # an int that no float holds
        return False
