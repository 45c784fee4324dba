"""The time of an engine: asked where a call begins, checked, and still until the next one."""

import math

import pytest

from contextpilot_core import ConfigError, ReuseEngine
from contextpilot_core.engine.clock import Clock
from contextpilot_core.types import Served


def test_time_stands_still_until_it_is_asked_for_again():
    times = iter((5, 7.5))
    clock = Clock(lambda: next(times))
    assert clock.ask() == clock() == clock() == 5
    assert clock.ask() == clock() == 7.5


@pytest.mark.parametrize("wrong", ["5", None, True, math.nan, math.inf, 10**400, pytest.param(10**5000, id="huge")])
def test_what_is_no_time_is_refused_and_the_last_one_stays(wrong):
    times = iter((5, wrong, wrong))
    clock = Clock(lambda: next(times))
    clock.ask()
    with pytest.raises(ConfigError, match="clock returned .* a number that is finite"):
        clock.ask()
    clock.try_to_ask()
    assert clock() == 5


CALLS = {
    "plan": lambda engine, plan: engine.plan(["b"]),
    "plan_batch": lambda engine, plan: engine.plan_batch([plan.request]),
    "plan_window": lambda engine, plan: engine.plan_window([plan.request]),
    "expected_reuse": lambda engine, plan: engine.expected_reuse(plan.request),
    "commit": lambda engine, plan: engine.commit(plan),
    "abandon": lambda engine, plan: engine.abandon(plan),
    "observe": lambda engine, plan: engine.observe(plan, Served()),
    "warm": lambda engine, plan: engine.warm([plan.request]),
    "stats": lambda engine, plan: engine.stats(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", [None, ZeroDivisionError])
def test_a_clock_that_fails_changes_nothing(call, wrong):
    def clock():
        if broken and wrong:
            raise wrong
        return None if broken else 1.0

    broken = False
    engine = ReuseEngine(clock=clock)
    plan = engine.plan(["a"], commit=False)
    before = engine.stats()
    broken = True
    with pytest.raises(wrong or ConfigError):
        call(engine, plan)
    broken = False
    assert engine.stats() == before
    engine.check_integrity()
    assert engine.commit(plan)
