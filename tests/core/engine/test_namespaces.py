"""Tenants in one engine (case V8): quotas of their own, and no influence of one on the plans of another."""

import gc
import tracemalloc
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import Served
from tests.core.conftest import body
from tests.forked import in_child

TEXTS = [body(number, 25) for number in range(6)]
contexts = st.lists(st.sampled_from(TEXTS), max_size=5)
ACTIONS = ("plan", "in flight", "batch", "abandon", "evict", "expect", "reset", "turn")
steps = st.tuples(st.sampled_from(ACTIONS), contexts)


class Tenant:
    """Plays steps in one namespace of an engine, and keeps everything that it is told."""

    def __init__(self, engine: ReuseEngine, namespace: str) -> None:
        self.engine, self.namespace = engine, namespace
        self.told: list[object] = []
        self.plans, self.messages = [], []

    def play(self, step: tuple[str, list[str]]) -> None:
        action, blocks = step
        mine = {"namespace": self.namespace}
        request = ContextRequest(blocks=blocks, query="q", request_id=f"id-{len(self.told)}", **mine)
        if action == "batch":
            plans = list(self.engine.plan_batch([request, ContextRequest(blocks=blocks[::-1], **mine)]))
        elif action in ("plan", "in flight"):
            flags = {"request_id": request.request_id, "commit": action == "plan"}
            plans = [self.engine.plan(blocks, query="q", **mine, **flags)]
        elif action == "turn":
            plans = [self.engine.plan(blocks, query="q", messages=self.messages, **mine)]
            self.messages = [*plans[0].messages, {"role": "assistant", "content": "yes"}]
        else:
            plans = []
        if action == "abandon" and self.plans:
            self.told.append(self.engine.abandon(self.plans[-1]))
        elif action == "evict" and self.plans:
            self.told.append(self.engine.evict([self.plans[0].request_id], **mine).freed_tokens)
        elif action == "expect":
            self.told.append(self.engine.expected_reuse(request))
        elif action == "reset":
            self.engine.reset(self.namespace)
        self.plans += plans
        self.told.append([(plan.messages, plan.order, plan.expected_reused_tokens, plan.hints) for plan in plans])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), steps), max_size=16),
    st.sampled_from(["greedy", "paper"]),
    st.sampled_from([None, 60, 300]),
)
def test_what_one_tenant_does_never_shows_in_the_plans_of_another(mixed, strategy, cache_tokens):
    config = EngineConfig(strategy=strategy, cache_tokens=cache_tokens, kv_block=1, max_requests=3, max_messages=4)
    shared, alone = ReuseEngine(config), ReuseEngine(config)
    watched, other, reference = Tenant(shared, "a"), Tenant(shared, "b"), Tenant(alone, "a")
    for is_watched, step in mixed:
        (watched if is_watched else other).play(step)
    for is_watched, step in mixed:
        if is_watched:
            reference.play(step)
    # generated ids are counted per engine and are no part of a prompt; everything else is as if it were alone
    assert watched.told == reference.told
    shared.check_integrity()


def test_a_tenant_has_its_quota_and_the_others_have_the_default():
    engine = ReuseEngine(EngineConfig(cache_tokens=None, quotas={"small": 200}))
    for namespace in ("small", "large"):
        for number in range(9):
            engine.plan([body(f"{namespace}-{number}")], namespace=namespace)
    first = {name: ContextRequest(blocks=[body(f"{name}-0")], namespace=name) for name in ("small", "large")}
    assert engine.expected_reuse(first["small"]) == 0
    assert engine.expected_reuse(first["large"]) > 0
    latest = ContextRequest(blocks=[body("small-8")], namespace="small")
    assert engine.expected_reuse(latest) > 0
    engine.reset("large")
    assert 0 < engine.stats().cached_tokens <= 200


@pytest.mark.parametrize("strategy", ["greedy", "paper"])
def test_a_child_that_is_forked_while_threads_plan_plans_on(strategy):
    engine = ReuseEngine(EngineConfig(strategy=strategy, cache_tokens=300))
    stop = Event()

    def traffic():
        number = 0
        while not stop.is_set():
            number += 1
            engine.plan([body((number + place) % 40) for place in range(8)], query="q", commit=number % 2 == 0)

    def child():
        for number in range(3):
            engine.plan([body(number), body(number + 1)], namespace=f"space {number % 2}")
        engine.check_integrity()
        return engine.stats().namespaces

    threads = [Thread(target=traffic) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(child) in (2, 3) for _ in range(15))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    engine.check_integrity()


def test_a_child_forgets_what_was_in_the_middle_of_a_change_and_nothing_else():
    engine = ReuseEngine()
    plan = engine.plan([body(0)], commit=False)

    def child():
        return engine.commit(plan), engine.stats().namespaces

    assert in_child(child) == (True, 1)
    inside, done = Event(), Event()

    def change():
        with engine._namespaces._lock:
            inside.set()
            done.wait()

    thread = Thread(target=change)
    thread.start()
    inside.wait()
    try:
        assert in_child(child) == (False, 0)
    finally:
        done.set()
        thread.join()
    assert child() == (True, 1)


def fill(engine: ReuseEngine, namespace: str, plans: int, commit: bool = True) -> None:
    for number in range(plans):
        documents = [
            ContextBlock(text=body((namespace, number, place), 200), metadata={"n": "x" * 50}) for place in range(8)
        ]
        plan = engine.plan(documents, query="q", namespace=namespace, commit=commit)
        if commit:  # what a later turn works out of the messages counts, too
            engine.plan([body(number)], query="q", namespace=namespace, messages=[*plan.messages, ANSWER])


ANSWER = {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize("commit", [True, False], ids=["messages", "in flight"])
def test_memory_is_bounded_in_bytes(commit):
    config = EngineConfig(max_bytes=2 << 20, cache_tokens=2_000)
    engine = ReuseEngine(config, clock=ManualClock())
    fill(engine, "warm", 3, commit)
    gc.collect()
    tracemalloc.start()
    taken = []
    for _ in range(3):
        fill(engine, "a", 60, commit)
        fill(engine, "b", 60, commit)
        gc.collect()
        taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(taken) < 1.25 * config.max_bytes
    assert taken[2] < 1.05 * taken[1]
    assert engine.stats("a").known_messages > 2 or not commit
    engine.check_integrity()


def test_what_one_namespace_remembers_makes_no_other_forget():
    engines = [ReuseEngine(EngineConfig(max_bytes=1 << 20)) for _ in range(2)]
    for engine in engines:
        engine.plan([body("mine", 200)], namespace="a", commit=False)
        fill(engine, "a", 3)
        engine.plan([body("first")], namespace="b")  # a namespace more; what it does makes no difference
    fill(engines[1], "b", 100)
    fill(engines[1], "b", 100, commit=False)
    assert engines[0].stats("a") == engines[1].stats("a")


def test_of_too_many_namespaces_the_idle_one_used_longest_ago_is_forgotten():
    engine = ReuseEngine(EngineConfig(max_namespaces=3))
    waiting = engine.plan([body(0)], namespace="waiting", commit=False)
    plans = {name: engine.plan([body(0)], namespace=name) for name in "abcde"}
    stats = engine.stats()
    assert (stats.namespaces, stats.planned) == (3, 6)
    assert [engine.stats(name).planned for name in ("waiting", *"abcde")] == [1, 0, 0, 0, 1, 1]
    assert engine.commit(waiting)
    assert not engine.abandon(plans["a"])
    assert engine.observe(plans["a"], Served(prompt_tokens=100, cached_tokens=0)).reported == 0
    assert engine.plan([body(0)], namespace="a").request_id == "r1"
    engine.check_integrity()
