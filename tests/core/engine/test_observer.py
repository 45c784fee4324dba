"""The observer of an engine: told of every plan and every response, with the time that planning took."""

import pytest

from contextpilot_core import ConfigError, ContextRequest, ReuseEngine
from contextpilot_core.prompt.messages import plain
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import Served


class Notes:
    def __init__(self):
        self.plans, self.observations = [], []

    def attached(self, stats):
        self.stats = stats

    def planned(self, plan, seconds):
        self.plans.append((plan, seconds))

    def observed(self, plan, observation):
        self.observations.append((plan, observation))


def test_plans_come_with_their_time():
    clock, notes = ManualClock(), Notes()

    def count(text):
        clock.advance(0.5)
        return len(text)

    engine = ReuseEngine(clock=clock, token_counter=count, observer=notes)
    plan = engine.plan(["text"])
    batch = engine.plan_batch([ContextRequest(blocks=["one"]), ContextRequest(blocks=["two"])])
    window = engine.plan_window([ContextRequest(blocks=["three"])])
    engine.plan_batch([])
    moved = engine.plan(["four", "five"], order=(1, 0))
    assert [each for each, _ in notes.plans] == [plan, *batch.plans, *window.plans, moved]
    assert all(seconds > 0 for _, seconds in notes.plans)
    assert notes.plans[1][1] == notes.plans[2][1]  # of a batch: each plan's share


def test_responses_are_told():
    notes = Notes()
    engine = ReuseEngine(observer=notes)
    plan = engine.plan(["text"])
    told = engine.observe(plan, Served(prompt_tokens=100, cached_tokens=16))
    assert notes.observations == [(plan, told)]
    assert told.reported == 16
    assert notes.stats() == engine.stats()


def test_what_is_refused_is_not_told():
    notes = Notes()
    engine = ReuseEngine(observer=notes)
    for wrong in (1, "text"):
        try:
            engine.plan(wrong)
        except TypeError:
            continue
        raise AssertionError
    assert notes.plans == []


def test_errors_of_an_observer_stay_outside_and_are_logged_once_without_their_words(caplog):
    class Failing(Notes):
        def planned(self, plan, seconds):
            raise ValueError(plan.text)

        def observed(self, plan, observation):
            raise KeyError(plan.text)

    engine = ReuseEngine(observer=Failing())
    for _ in range(2):
        plan = engine.plan(["a secret"], commit=False)
        assert engine.observe(plan, Served(prompt_tokens=100, cached_tokens=16)).reported == 16
        assert engine.commit(plan)
    assert len(engine.plan_batch([ContextRequest(blocks=["one"]), ContextRequest(blocks=["two"])])) == 2
    assert [record.message for record in caplog.records] == [
        "the observer Failing failed (ValueError)",
        "the observer Failing failed (KeyError)",
    ]
    assert "secret" not in caplog.text


class Refusing(Notes):
    def attached(self, stats):
        raise ConfigError("the name is taken")


class OneEngine:
    """A journal that serves one engine, as that of Redis does."""

    seal = staticmethod(plain)

    def __init__(self):
        self.state = None

    def open(self, state):
        assert self.state is None
        self.state = state

    def wake(self):
        pass


def test_an_observer_that_refuses_an_engine_uses_no_journal_up():
    journal = OneEngine()
    with pytest.raises(ConfigError, match="taken"):
        ReuseEngine(journal=journal, observer=Refusing())
    assert ReuseEngine(journal=journal, observer=Notes()).plan(["text"]).order == (0,)


class Half:
    def planned(self, plan, seconds):
        pass


@pytest.mark.parametrize("wrong", [5, "observer", object(), Half(), Notes])
def test_what_is_no_observer_is_refused(wrong):
    if wrong is Notes:
        wrong = type("Odd", (Notes,), {"observed": 5})()
    with pytest.raises(ConfigError, match="observer=.* lacks .*observed; give an object with the methods"):
        ReuseEngine(observer=wrong)
