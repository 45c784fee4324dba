"""Many requests together: opened, ordered without the lock, and settled in their order or not at all; learning."""

import random
import threading

import pytest

from contextpilot_core import (
    ContextRequest,
    DuplicateRequestError,
    EngineConfig,
    ReuseEngine,
    TooManyContextsError,
)
from contextpilot_core.clustering.values import Lead
from contextpilot_core.engine.batch import (
    BatchOrder,
    by_head,
    context_of,
    learn,
    plan_batch,
    plan_together,
    session_of,
)
from contextpilot_core.engine.namespaces import Namespaces
from contextpilot_core.plan.choose import choose
from contextpilot_core.plan.request import Job
from tests.core.conftest import body

A, B, C = (body(name) for name in "abc")


def request(*names: object, **fields: object) -> ContextRequest:
    return ContextRequest(blocks=[body(name) for name in names], **fields)  # type: ignore[arg-type]


# -- through the engine ------------------------------------------------------------------------------------------


def test_p1_every_plan_of_a_batch_belongs_to_its_request():
    engine = ReuseEngine()
    engine.plan([A, B, C])
    requests = [request("b", "a", "x", query="0"), request("q", query="1"), request("a", "b", "y", query="2")]
    batch = engine.plan_batch(requests)
    assert sorted(batch.schedule) == [0, 1, 2]
    for given, plan in zip(requests, batch.plans, strict=True):
        assert plan.request.query == given.query
        assert sorted(block.text for block in plan.blocks) == sorted(map(str, given.blocks))
        assert plan.messages[-1]["content"].endswith(given.query)
    assert [plan.request.query for plan in batch.in_schedule()] == [requests[i].query for i in batch.schedule]


def test_a_batch_makes_shared_prefixes_and_sends_families_together():
    engine = ReuseEngine()
    batch = engine.plan_batch(
        [request("a", "b", "x"), request("p", "q", "1"), request("y", "b", "a"), request("q", "2", "p")]
    )
    texts = [plan.context.text for plan in batch.plans]
    together = [position % 2 for position in batch.schedule]
    assert together in ([0, 0, 1, 1], [1, 1, 0, 0])
    for one, other in ((0, 2), (1, 3)):
        shared = batch.plans[one].context.ends[1]
        assert texts[one][:shared] == texts[other][:shared]
    assert sum(plan.expected_reused_tokens for plan in batch) > 0


def test_turns_of_one_session_keep_their_order_in_a_batch():
    rng = random.Random(4)
    requests = [
        ContextRequest(
            blocks=[body(name) for name in rng.sample("abcdefgh", 4)],
            session_id=rng.choice(["s1", "s2", None]),
        )
        for _ in range(40)
    ]
    schedule = ReuseEngine().plan_batch(requests).schedule
    for session in ("s1", "s2"):
        turns = [position for position in schedule if requests[position].session_id == session]
        assert turns == sorted(turns)


def test_a_batch_in_flight_is_committed_one_by_one():
    engine = ReuseEngine()
    batch = engine.plan_batch([request("a", "b"), request("b", "a")], commit=False)
    assert engine.stats().in_flight == 2
    assert engine.commit(batch.plans[0])
    assert engine.abandon(batch.plans[1])
    engine.check_integrity()
    assert engine.stats().live_requests == 1


@pytest.mark.parametrize("strategy", ["greedy", "paper"])
def test_a_batch_that_breaks_off_leaves_nothing(strategy: str):
    def count(text: str) -> int:
        if text.startswith("Relevance"):
            raise ZeroDivisionError
        return len(text) // 4

    config = EngineConfig(strategy=strategy, note="compact")  # type: ignore[arg-type]
    engine = ReuseEngine(config, token_counter=count)
    batch = [request("x", "a", "b"), request("y", "b", "a"), request("z", "a", "b")]
    with pytest.raises(ZeroDivisionError):
        engine.plan_batch(batch)
    engine.check_integrity()
    space = engine._namespaces._known["default"]
    assert engine.stats().live_requests == 0
    assert not space._opened
    assert engine.stats().known_blocks == 0
    assert strategy == "greedy" or not space.index.paper.knows(())


# -- the parts ---------------------------------------------------------------------------------------------------


def opened(*requests: ContextRequest, **fields: object) -> tuple[ReuseEngine, Namespaces, list[Job]]:
    """An engine, its namespaces, and requests that were prepared there."""
    engine = ReuseEngine(EngineConfig(**fields))  # type: ignore[arg-type]
    return engine, engine._namespaces, engine._prepare(requests)


def test_requests_are_settled_in_the_order_that_was_found_each_with_its_lead():
    engine, namespaces, jobs = opened(request("a"), request("b", "c"), request("c"), note="none", kv_block=1)

    def ordering() -> BatchOrder:
        assert [job.request_id for job in jobs] == ["r1", "r2", "r3"]  # all are open
        engine.check_integrity()  # what they hold belongs to them
        assert engine.stats().planned == 0
        lead = Lead((jobs[1].ids[1],), 99)
        return BatchOrder([2, 0, 1], [None, lead, None])

    batch = plan_together(namespaces, jobs, ordering, commit=False)
    assert batch.schedule == (2, 0, 1)
    assert [plan.order for plan in batch] == [(0,), (1, 0), (0,)]
    assert list(namespaces._known["default"].in_flight) == ["r3", "r1", "r2"]
    assert [plan.expected_reused_tokens > 0 for plan in batch] == [False, True, False]  # the second follows the third
    engine.check_integrity()


@pytest.mark.parametrize("settled", [0, 1, 2])
def test_what_breaks_off_leaves_nothing_whatever_was_settled(monkeypatch: pytest.MonkeyPatch, settled: int):
    engine, namespaces, jobs = opened(request("a"), request("b", namespace="other"), request("c"))
    calls: list[Job] = []

    def interrupted(job: Job, *arguments: object) -> None:
        calls.append(job)
        if len(calls) > settled:
            raise KeyboardInterrupt
        choose(job, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("contextpilot_core.engine.namespace.choose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan_together(namespaces, jobs, lambda: BatchOrder([2, 1, 0], [None] * 3), commit=True)
    assert calls == jobs[::-1][: settled + 1]
    assert all(not space._opened and not space.in_flight for space in namespaces._known.values())
    assert engine.stats().live_requests == engine.stats().known_blocks == 0
    engine.check_integrity()


def test_an_ordering_that_fails_leaves_nothing():
    engine, namespaces, jobs = opened(request("a", request_id="mine"), request("b"))
    with pytest.raises(ZeroDivisionError):
        plan_together(namespaces, jobs, lambda: BatchOrder([1 // 0], []), commit=True)
    assert engine.stats().known_blocks == 0
    assert engine.plan([A], request_id="mine").request_id == "mine"
    engine.check_integrity()


def test_no_lock_is_held_while_requests_are_ordered():
    engine, namespaces, jobs = opened(request("a"), request("b"))

    def ordering() -> BatchOrder:
        others = [threading.Thread(target=engine.plan, args=([C],)) for _ in range(2)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(5)
        assert not any(thread.is_alive() for thread in others)
        return BatchOrder([0, 1], [None, None])

    plan_together(namespaces, jobs, ordering, commit=True)
    assert engine.stats().planned == 4


def test_requests_of_one_namespace_behind_the_same_head_may_share():
    hi = [{"role": "user", "content": "hi"}]
    engine, namespaces, jobs = opened(
        request("a"),
        request("b", namespace="other"),
        request("c", instructions="S"),
        request("d"),
        request("e", messages=hi),
        request("f", instructions="S"),
        request("g", messages=hi, query="q", session_id="s"),
    )
    for job in jobs:
        namespaces.open(job)
    assert by_head(jobs) == [[0, 3], [1], [2, 5], [4, 6]]
    namespaces.cancel(jobs)
    engine.check_integrity()


def test_requests_are_clustered_by_what_may_share_a_prefix():
    engine, namespaces, jobs = opened(request("a", "b", "a", "c"), budget=2, pinned=1)
    (job,) = jobs
    namespaces.open(job)
    assert context_of(job, EngineConfig()) == tuple(job.ids[position] for position in (0, 1, 3))
    assert context_of(job, engine.config) == tuple(job.ids[position] for position in (0, 1))
    namespaces.cancel(jobs)
    engine, namespaces, (first,) = opened(request("a", "b", "a"), dedup=False)
    namespaces.open(first)
    assert context_of(first, engine.config) == (first.ids[0], first.ids[1])  # each block once
    namespaces.cancel([first])


def test_hinted_blocks_are_no_part_of_what_is_clustered():
    engine = ReuseEngine()
    history = [*engine.plan([A], query="q").messages, {"role": "assistant", "content": "."}]
    (job,) = engine._prepare([request("b", "a", "c", messages=history)])
    engine._namespaces.open(job)
    assert context_of(job, engine.config) == (job.ids[0], job.ids[2])
    engine._namespaces.cancel([job])
    engine.check_integrity()


def test_sessions_belong_to_their_namespace():
    _, _, jobs = opened(request(), request(session_id="s"), request(session_id="s", namespace="n"))
    assert [session_of(job) for job in jobs] == [None, ("default", "s"), ("n", "s")]


def test_without_a_strategy_and_by_arrival_requests_stay_in_their_order():
    stream = [request(*names) for names in ("ab", "cd", "ba", "dc")]
    for fields in ({"strategy": "none"}, {"schedule": "arrival"}):
        _, namespaces, jobs = opened(*stream, **fields)
        config = EngineConfig(**fields)  # type: ignore[arg-type]
        assert plan_batch(namespaces, jobs, config, commit=True).schedule == (0, 1, 2, 3)
    assert ReuseEngine().plan_batch(stream).schedule == (0, 2, 1, 3)


def test_the_papers_batches_are_bounded_and_a_refused_one_leaves_nothing():
    engine = ReuseEngine(EngineConfig(strategy="paper"))
    stream = [ContextRequest(blocks=["a"])] * 20_001
    with pytest.raises(TooManyContextsError, match="greedy"):
        engine.plan_batch(stream)
    assert engine.stats().known_blocks == engine.stats().planned == 0
    engine.check_integrity()


def test_a_second_batch_of_the_paper_goes_into_the_tree_of_the_first():
    engine = ReuseEngine(EngineConfig(strategy="paper", note="none"))
    engine.plan_batch([request("a", "b", "x"), request("b", "a", "y")])
    batch = engine.plan_batch([request("c", "b", "a"), request("d", "e")])
    assert [set(batch.plans[0].order[:2]), batch.plans[1].order] == [{1, 2}, (0, 1)]
    engine.check_integrity()


# -- learning ----------------------------------------------------------------------------------------------------


def test_what_is_learnt_is_what_requests_share_behind_their_head():
    engine, namespaces, jobs = opened(
        request("a", "b", "x"), request("b", "a", "y"), request("z", "c"), request("b", "a", namespace="other")
    )
    learn(namespaces, jobs)
    index = namespaces._known["default"].index
    paths = [[index.blocks.digest(block) for block in node.blocks] for node in index._learnt.nodes()]
    assert len(paths) == 1 and sorted(paths[0]) == sorted(jobs[0].digests[:2])
    assert not list(namespaces._known["other"].index._learnt.nodes())
    stats = engine.stats()
    assert (stats.planned, stats.live_requests, stats.cached_tokens, stats.in_flight) == (0, 0, 0, 0)
    assert stats.known_blocks == 2
    assert not namespaces._known["default"]._opened
    engine.check_integrity()


def test_learnt_orders_are_followed_before_anything_is_cached():
    engine = ReuseEngine(EngineConfig(note="none"))
    engine.warm([request("a", "b", "x"), request("b", "a", "y")])
    assert engine.stats().cached_tokens == 0
    first = engine.plan([C, B, A])
    assert set(first.order[:2]) == {1, 2}
    engine.check_integrity()
    engine.reset()
    assert engine.plan([C, B, A]).order == (0, 1, 2)


def test_requests_that_cannot_be_learnt_leave_nothing():
    engine = ReuseEngine()
    engine.plan([A], request_id="mine")
    before = engine.stats()
    with pytest.raises(DuplicateRequestError):
        engine.warm([request("b", "c"), request("c", "b"), request("b", request_id="mine")])
    assert engine.stats() == before
    engine.check_integrity()
    engine.warm([])
    assert engine.stats() == before
