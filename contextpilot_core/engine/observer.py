"""Callbacks for metrics and logs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

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
    """Tells an observer. Each kind of error is logged once, without its words, which may hold a text."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._said: set[str] = set()

    def planned(self, plan: Plan, seconds: float) -> None:
        """Tell of a plan."""
        with self._contained():
            self._observer.planned(plan, seconds)

    def observed(self, plan: Plan, observation: Observation) -> None:
        """Tell of a response."""
        with self._contained():
            self._observer.observed(plan, observation)

    @contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the plan stands, whatever its observer makes of it
            kind = type(error).__name__
            if kind not in self._said:
                self._said.add(kind)
                _log.warning("the observer %s failed (%s)", type(self._observer).__name__, kind)
