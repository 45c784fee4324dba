"""What a caller gives may fail at any moment, or call the engine: nothing is half-done, later plans stay the same."""

import random
from collections.abc import Callable, Sequence
from itertools import count as numbers
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, Plan, ReuseEngine
from tests.core.conftest import body

SHARED = " ".join(f"shared-{number}" for number in range(40))
TEXTS = [*(body(name) for name in range(6)), f"{body(6)} {SHARED}", f"{SHARED} {body(7)}", "[Doc 1]\n===\nx\n==="]


class Broken(BaseException):
    """Raised by what the caller gave."""


class Given:
    """A counter, a clock, a renderer and an observer in one, which fail at a chosen call or call the engine there."""

    def __init__(self) -> None:
        self.left: int | None = None  # calls until one fails, None for never
        self.now = 0.0
        self.then: Callable[[], object] | None = None
        self.error: type[BaseException] = Broken

    def _called(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            if self.then is None:
                raise self.error
            self.then()

    def count(self, text: str) -> int:
        self._called()
        return max(1, len(text) // 4)

    def clock(self) -> float:
        self._called()
        return self.now

    def render(self, block: ContextBlock) -> str:
        self._called()
        return block.text

    def attached(self, stats: object) -> None:
        pass

    def planned(self, plan: Plan, seconds: float) -> None:
        self._called()

    observed = planned


def made(given: Given, seed: int, caches: Sequence[int | None] = (250, 600, None)) -> ReuseEngine:
    pick = random.Random(seed)
    config = EngineConfig(
        cache_tokens=pick.choice(caches),
        strategy=pick.choice(["greedy", "greedy", "paper", "none"]),
        note=pick.choice(["compact", "full"]),
        kv_block=4,
        in_flight_seconds=2,
        renderer=given.render,
    )
    return ReuseEngine(config, token_counter=given.count, clock=given.clock)


def steps(seed: int) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    return [
        {
            "blocks": pick.choices(TEXTS, k=pick.randrange(6)),
            "query": pick.choice(["q", "", "[Doc 2]"]),
            "session": pick.choice([None, "s", "t"]),
            "commit": pick.random() < 0.7,
            "request_id": f"mine-{number}",
            "seconds": pick.choice([0, 0, 1, 3]),
            "namespace": pick.choice(["default", "other"]),
        }
        for number in range(12)
    ]


def take(engine: ReuseEngine, histories: dict[Any, Any], step: dict[str, Any]) -> Plan:
    fields = {name: value for name, value in step.items() if name not in ("session", "seconds")}
    key = (step["session"], step["namespace"])
    plan = engine.plan(**fields, messages=histories.get(key, ()))
    if step["session"] is not None:
        histories[key] = (*plan.messages, {"role": "assistant", "content": "Yes."})
    return plan


def said(plan: Plan) -> tuple[object, ...]:
    return plan.order, plan.labels, plan.messages, plan.report, plan.expected_share, plan.recognised, plan.dropped


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_whatever_fails_at_whatever_call_leaves_the_engine_as_it_was(seed: int) -> None:
    calm, broken = Given(), Given()
    engine, twin = made(broken, seed), made(calm, seed)
    ours: dict[Any, Any] = {}
    theirs: dict[Any, Any] = {}
    failed = 0
    for namespace in ("default", "other"):  # a refused request may leave an empty one
        engine.plan([], namespace=namespace), twin.plan([], namespace=namespace)
    for step in steps(seed):
        calm.now = broken.now = calm.now + step["seconds"]
        twin.stats()
        before = engine.stats()
        for calls in numbers():
            broken.left = calls
            try:
                plan = take(engine, ours, step)
            except Broken:
                failed += 1
                assert engine.stats() == before
                engine.check_integrity()
                continue
            broken.left = None
            break
        assert said(plan) == said(take(twin, theirs, step))
        assert engine.stats() == twin.stats()
        engine.check_integrity()
    assert failed


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["plan_batch", "plan_window", "warm", "expected_reuse"]))
def test_calls_for_many_requests_that_break_off_leave_nothing(seed: int, call: str) -> None:
    given = Given()
    engine = made(given, seed, caches=[None])
    requests = [
        ContextRequest(blocks=step["blocks"], query=step["query"], namespace=step["namespace"]) for step in steps(seed)
    ]
    engine.plan(TEXTS[:3], request_id="first")
    before = engine.stats()
    for calls in numbers():
        given.left = calls
        try:
            getattr(engine, call)(requests[0] if call == "expected_reuse" else requests)
        except Broken:
            after = engine.stats()
            assert (after.planned, after.committed, after.live_requests) == (before.planned, before.committed, 1)
            assert after.known_blocks <= before.known_blocks
            engine.check_integrity()
            continue
        break
    assert calls
    given.left = None
    assert engine.plan(TEXTS[3:], request_id="mine").order
    engine.check_integrity()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(["plan", "batch", "evict", "reset", "check", "same id"])
)
def test_what_a_caller_gives_may_call_the_engine(seed: int, calls: int, inner: str) -> None:
    given = Given()
    engine = made(given, seed)
    actions: dict[str, Callable[[], object]] = {
        "plan": lambda: engine.plan(step["blocks"], query="inner", namespace=step["namespace"]),
        "batch": lambda: engine.plan_batch([ContextRequest(blocks=step["blocks"])] * 2),
        "evict": lambda: engine.evict([f"mine-{number}" for number in range(12)]),
        "reset": engine.reset,
        "check": engine.check_integrity,
        "same id": lambda: engine.plan(["other"], request_id=step["request_id"], namespace=step["namespace"]),
    }
    given.then = actions[inner]
    histories: dict[Any, Any] = {}
    for step in steps(seed):
        given.now += step["seconds"]
        given.left = calls
        try:
            plan = take(engine, histories, step)
            assert sorted(plan.order + plan.dropped) == list(range(len(step["blocks"])))
        except ValueError:
            assert inner == "same id"
        given.left = None
        engine.check_integrity()
    assert engine.stats().planned


@pytest.mark.parametrize("word", ["<|endoftext|>", "question", "document"])
def test_a_counter_that_refuses_a_text_refuses_the_request_only(word: str) -> None:
    def count(text: str) -> int:
        if word in text:
            raise ValueError("disallowed special token")
        return len(text)

    engine = ReuseEngine(token_counter=count)
    first = engine.plan([TEXTS[0]], query="q", session_id="s")
    before = engine.stats()
    for fields in ({"query": f"a {word}"}, {"blocks": [word, "a"]}, {"messages": [{"role": "user", "content": word}]}):
        with pytest.raises(ValueError, match="disallowed"):
            engine.plan(**{"blocks": ["a"], "messages": first.messages, "request_id": "x", **fields})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="disallowed"):
            engine.plan_batch([ContextRequest(blocks=["b"]), ContextRequest(**{"blocks": ["a"], **fields})])  # type: ignore[arg-type]
    assert engine.stats() == before
    assert engine.plan([TEXTS[0]], query="r", messages=first.messages, request_id="x").hints
    engine.check_integrity()


class Failing(Given):
    """An observer that fails in each of its calls, and a clock that does after a plan was made."""

    def planned(self, plan: Plan, seconds: float) -> None:
        raise ValueError


@pytest.mark.parametrize("calls", range(3))
def test_a_clock_that_fails_after_planning_fails_for_the_observer_only(calls: int) -> None:
    given = Failing()
    given.error = ArithmeticError
    engine = ReuseEngine(clock=given.clock, observer=given)
    given.left = calls
    if calls:
        assert engine.plan(["a"]).request_id == "r1"
    else:
        with pytest.raises(ArithmeticError):
            engine.plan(["a"])
    given.left = None
    assert engine.stats().planned == (calls > 0)
    engine.check_integrity()
