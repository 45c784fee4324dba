"""Callbacks for metrics and logs."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from contextpilot_core.checks import shown
from contextpilot_core.errors import ConfigError
from contextpilot_core.plan import Plan
from contextpilot_core.types import EngineStats, Observation

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """One per engine; told after the fact, in the caller's thread, without any lock. Must not take long.

    What `planned` and `observed` raise goes no further than to the log.
    """

    def attached(self, stats: Callable[[], EngineStats]) -> None:
        """Take note of the engine: ``stats`` is what it offers, a method of it. Told once, when the engine is made."""

    def planned(self, plan: Plan, seconds: float) -> None:
        """Take note of a plan, and how long planning took (of a batch: each plan's share)."""

    def observed(self, plan: Plan, observation: Observation) -> None:
        """Take note of a response: cached tokens as predicted and as reported."""


class Told:
    """Tells an observer. Each kind of error is logged once, without its words, which may hold a text.

    Raises:
        ConfigError: what is given is no observer.
    """

    def __init__(self, observer: Observer) -> None:
        missing = [name for name in ("attached", "planned", "observed") if not callable(getattr(observer, name, None))]
        if missing:
            raise ConfigError(
                f"observer={shown(observer)} lacks {', '.join(missing)}; give an object with the methods of Observer"
            )
        self._observer = observer
        self._said: set[tuple[str, str]] = set()

    def planned(self, plans: Sequence[Plan], seconds: Callable[[], float]) -> None:
        """Tell of plans that were made together; ``seconds``: how long that took."""
        share = 0.0
        with self._contained("clock"):
            share = seconds() / len(plans)
        for plan in plans:
            with self._contained("observer"):
                self._observer.planned(plan, share)

    def observed(self, plan: Plan, observation: Observation) -> None:
        """Tell of a response."""
        with self._contained("observer"):
            self._observer.observed(plan, observation)

    @contextmanager
    def _contained(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the plan stands, whatever its observer makes of it
            kind = type(error).__name__
            if (what, kind) not in self._said:
                self._said.add((what, kind))
                who = f"observer {type(self._observer).__name__}" if what == "observer" else "clock"
                _log.warning("the %s failed (%s)", who, kind)
