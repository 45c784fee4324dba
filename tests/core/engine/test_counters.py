"""Running totals: what one request and one response add, and that the engine's are the sums of what it told."""

from dataclasses import asdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextpilot_core import ContextRequest, EngineConfig, Observation, Plan, ReuseEngine, Served
from contextpilot_core.engine.counters import Counters
from contextpilot_core.plan.request import Job, prepare
from contextpilot_core.testing import ManualClock
from contextpilot_core.tokens import Weights, estimate_tokens
from tests.core.conftest import body


def planned(state: str = "in flight", **figures: int) -> Job:
    job = prepare(ContextRequest(blocks=["a", "b", "a", "a"]), EngineConfig(), Weights(estimate_tokens))
    job.state = state  # type: ignore[assignment]
    known = {"block_tokens": 50, "expected_tokens": 32, "note_tokens": 7, "hinted_tokens": 11, **figures}
    for name, value in known.items():
        setattr(job, name, value)
    return job


def told(counters: Counters) -> dict[str, int]:
    """What is not 0."""
    return {name: value for name, value in asdict(counters).items() if value}


def test_a_request_is_counted():
    counters = Counters()
    assert told(counters) == {}
    counters.add(planned())
    once = {
        "planned": 1,
        "block_tokens": 50,
        "expected_reused_tokens": 32,
        "note_tokens": 7,
        "hinted_tokens": 11,
        "dropped_blocks": 2,
    }
    assert told(counters) == once
    counters.add(planned("committed", block_tokens=1, expected_tokens=0))
    assert told(counters) == {
        "planned": 2,
        "committed": 1,
        "block_tokens": 51,
        "expected_reused_tokens": 32,
        "note_tokens": 14,
        "hinted_tokens": 22,
        "dropped_blocks": 4,
    }


@pytest.mark.parametrize(
    ("predicted", "reported", "prompt", "added"),
    [
        (32, 48, 90, {"compared": 1, "prompt_tokens": 90, "predicted_tokens": 32, "reported_tokens": 48}),
        (0, 0, 90, {"compared": 1, "prompt_tokens": 90}),
        (32, 48, None, {"compared": 1, "predicted_tokens": 32, "reported_tokens": 48}),
        (32, None, 90, {"unreported": 1}),
        (None, None, None, {"unreported": 1}),
        (None, 48, 90, {}),
    ],
)
def test_a_response_is_compared_where_both_figures_are_known(
    predicted: int | None, reported: int | None, prompt: int | None, added: dict[str, int]
):
    counters = Counters()
    for times in (1, 2):
        counters.observed(Observation(predicted=predicted, reported=reported, source="estimate"), prompt)
        assert told(counters) == {name: times * value for name, value in added.items()}


TEXTS = [body(number, 25) for number in range(5)]
contexts = st.lists(st.sampled_from(TEXTS), max_size=5)
figures = st.none() | st.integers(0, 500)
places = st.integers(0, 9)


class Totals(RuleBasedStateMachine):
    """The engine's totals are the sums of what it told."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.total, self.plans, self.history = ManualClock(), Counters(), [], []
        self.engine = ReuseEngine(EngineConfig(in_flight_seconds=6, max_requests=4), clock=self.clock)

    def count(self, plan: Plan, committed: bool) -> None:
        self.plans.append(plan)
        self.total.planned += 1
        self.total.committed += committed
        self.total.block_tokens += plan.report.block_tokens
        self.total.expected_reused_tokens += plan.expected_reused_tokens
        self.total.note_tokens += plan.report.note_tokens
        self.total.hinted_tokens += plan.report.hinted_tokens
        self.total.dropped_blocks += len(plan.dropped)

    @rule(blocks=contexts, commit=st.booleans())
    def plan(self, blocks: list[str], commit: bool) -> None:
        plan = self.engine.plan(blocks, query="q", messages=self.history, commit=commit)
        self.history = [*plan.messages, {"role": "assistant", "content": "."}]
        self.count(plan, commit)

    @rule(blocks=contexts, window=st.booleans())
    def together(self, blocks: list[str], window: bool) -> None:
        requests = [ContextRequest(blocks=blocks), ContextRequest(blocks=blocks[::-1])]
        for plan in (self.engine.plan_window if window else self.engine.plan_batch)(requests):
            self.count(plan, True)

    @precondition(lambda self: self.plans)
    @rule(place=places)
    def confirm(self, place: int) -> None:
        before = self.engine.stats().in_flight
        self.engine.commit(self.plans[place % len(self.plans)])
        self.total.committed += before - self.engine.stats().in_flight

    @precondition(lambda self: self.plans)
    @rule(place=places, evict=st.booleans())
    def take_back(self, place: int, evict: bool) -> None:
        plan = self.plans[place % len(self.plans)]
        if evict:
            self.engine.evict([plan.request_id])
        else:
            self.total.abandoned += self.engine.abandon(plan)

    @precondition(lambda self: self.plans)
    @rule(place=places, prompt=figures, cached=figures)
    def observe(self, place: int, prompt: int | None, cached: int | None) -> None:
        served = Served(prompt_tokens=prompt, cached_tokens=cached)
        self.total.observed(self.engine.observe(self.plans[place % len(self.plans)], served), prompt)

    @rule(seconds=st.integers(1, 7))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def equal(self) -> None:
        stats, counted = asdict(self.engine.stats()), asdict(self.total)
        namespaces_count = ("evictions", "expired")
        assert [stats[name] for name in counted if name not in namespaces_count] == [
            value for name, value in counted.items() if name not in namespaces_count
        ]

    def teardown(self) -> None:
        self.engine.reset()
        assert not any(value for name, value in asdict(self.engine.stats()).items() if name not in ("drift", "source"))


TestTotals = Totals.TestCase
TestTotals.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
