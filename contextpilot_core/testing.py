"""For the tests of applications: a clock that moves when it is told to."""

from contextpilot_core.checks import number


class ManualClock:
    """Seconds that stand still until `advance`: ``ReuseEngine(clock=ManualClock())``."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the present time in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass.

        Raises:
            ConfigError: ``seconds`` is negative; time never goes back.
        """
        self.now += number("seconds", seconds, "a clock never goes back", least=0)
