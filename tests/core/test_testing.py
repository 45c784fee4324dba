"""The clock for the tests of applications."""

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.testing import ManualClock


def test_time_passes_when_it_is_told_to():
    clock = ManualClock(5.0)
    assert clock() == clock() == 5.0
    clock.advance(2.5)
    clock.advance(0)
    assert clock() == 7.5
    assert ManualClock()() == 0.0


@pytest.mark.parametrize("seconds", [-1, -0.001])
def test_time_never_goes_back(seconds: float):
    clock = ManualClock(5.0)
    with pytest.raises(ValueError, match=rf"seconds={seconds} must be a number of at least 0; a clock never goes back"):
        clock.advance(seconds)
    assert clock() == 5.0


def test_an_engine_goes_by_it():
    clock = ManualClock()
    engine = ReuseEngine(EngineConfig(in_flight_seconds=10), clock=clock)
    engine.plan(["text"], commit=False)
    clock.advance(9.9)
    assert engine.stats().in_flight == 1
    clock.advance(0.1)
    assert (engine.stats().in_flight, engine.stats().expired) == (0, 1)
