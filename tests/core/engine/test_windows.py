"""Windows: together they find what one by one would miss, and nothing is lost, mixed up or left behind."""

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import BatchPlan, ContextRequest, EngineConfig, RequestTypeError, ReuseEngine
from contextpilot_core.cache import Path
from contextpilot_core.clustering import cached_families
from contextpilot_core.engine import windows
from contextpilot_core.plan.plan import Plan
from contextpilot_core.types import Message
from tests.core.conftest import body
from tests.core.engine.test_properties import check_plan, configs, contexts

SILENT = EngineConfig(note="none", kv_block=1)


def request(*names: str, **fields: object) -> ContextRequest:
    return ContextRequest(blocks=[body(name) for name in names], **fields)  # type: ignore[arg-type]


def names(plan: Plan) -> str:
    return "".join(str(plan.request.blocks[position])[0] for position in plan.order)


def reused(batch: BatchPlan) -> int:
    return sum(plan.expected_reused_tokens for plan in batch)


def test_requests_that_share_go_together():
    batch = ReuseEngine(SILENT).plan_window([request(*blocks) for blocks in ("abx", "pq1", "yba", "q2p")])
    assert [position % 2 for position in batch.schedule] in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert [names(plan)[:2] for plan in batch] == ["ab", "pq", "ab", "pq"]


def test_a_family_starts_with_what_is_cached():
    engine = ReuseEngine(SILENT)
    engine.plan(request("b", "z").blocks)
    batch = engine.plan_window([request(*blocks) for blocks in ("abx", "yab")])
    assert [names(plan) for plan in batch] == ["bax", "bay"]


def test_what_the_cache_would_drop_first_is_used_first():
    engine = ReuseEngine(EngineConfig(note="none", kv_block=1, cache_tokens=7 * len(body("a")) // 4))
    for blocks in ("ab", "cd", "ef"):
        engine.plan(request(*blocks).blocks)
    waiting = [request(*blocks) for blocks in ("uvw", "f1e", "d2c", "b3a")]
    batch = engine.plan_window(waiting)
    assert batch.schedule == (3, 2, 1, 0)
    assert [names(plan)[:2] for plan in batch.in_schedule()] == ["ab", "cd", "ef", "uv"]
    assert all(plan.expected_reused_tokens for plan in batch.plans[1:])


def test_larger_families_come_last_where_nothing_is_cached():
    batch = ReuseEngine(SILENT).plan_window([request(*blocks) for blocks in ("ab", "ba", "cd")])
    assert batch.schedule == (2, 0, 1)


def test_large_windows_are_merged_in_parts_in_the_order_given(monkeypatch: pytest.MonkeyPatch):
    assert windows.LARGEST == 256
    monkeypatch.setattr(windows, "LARGEST", 2)
    merged: list[int] = []

    def counted(contexts: list[Path], *arguments: object) -> object:
        merged.append(len(contexts))
        return cached_families(contexts, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(windows, "cached_families", counted)
    engine = ReuseEngine(SILENT)
    waiting = [request(*blocks) for blocks in ("abx", "yab", "abz", "pq1", "2pq")]
    batch = engine.plan_window([*waiting, request("ab", namespace="other")])
    assert sorted(merged) == [1, 1, 2, 2]
    assert sorted(batch.schedule) == list(range(6))
    assert [names(plan)[:2] for plan in batch.plans[:2]] == ["ab", "ab"]
    engine.check_integrity()


def test_a_window_of_one_is_planned_as_alone():
    alone, window = ReuseEngine(), ReuseEngine()
    for blocks in ("abc", "cab", "bcd", "dxa"):
        plan = alone.plan(request(*blocks).blocks)
        (other,) = window.plan_window([request(*blocks)])
        assert (plan.order, plan.annotation, plan.request_id) == (other.order, other.annotation, other.request_id)
        assert plan.expected_reused_tokens == other.expected_reused_tokens
    assert window.plan_window([]).plans == ()


def test_namespaces_and_heads_are_apart():
    engine = ReuseEngine(SILENT)
    first = engine.plan(request("h").blocks, query="1", namespace="one")
    history: list[Message] = [*first.messages, {"role": "assistant", "content": "."}]
    waiting = [
        request("a", "b", namespace="one"),
        request("a", "b", namespace="two"),
        request("b", "a", messages=history, namespace="one"),
        request("b", "a", "c", namespace="two"),
        request("c", "b", "a", messages=history, namespace="one"),
    ]
    batch = engine.plan_window(waiting)
    assert [waiting[position].namespace for position in batch.schedule] == ["one"] * 3 + ["two"] * 2
    assert [names(plan) for plan in batch] == ["ab", "ab", "ba", "abc", "bac"]
    assert batch.schedule[:3] == (2, 4, 0)  # what goes on from the cached head comes first
    engine.check_integrity()


def test_turns_of_one_session_keep_their_order():
    rng = random.Random(4)
    waiting = [
        request(*rng.sample("abcdefgh", 4), session_id=rng.choice(["s1", "s2", None]), namespace=rng.choice("xy"))
        for _ in range(40)
    ]
    schedule = ReuseEngine().plan_window(waiting).schedule
    for session in ((name, space) for name in ("s1", "s2") for space in "xy"):
        turns = [place for place in schedule if (waiting[place].session_id, waiting[place].namespace) == session]
        assert turns == sorted(turns)


def test_selection_and_hints_as_elsewhere():
    engine = ReuseEngine(EngineConfig(note="none", kv_block=1, budget=2, pinned=1))
    engine.plan(request("a", "d").blocks)
    batch = engine.plan_window([request(*"abcd"), request(*"xyz")])
    assert names(batch.plans[0]) == "ad"
    assert batch.plans[0].unselected == (1, 2)
    first = engine.plan(request("m", "n").blocks, query="1")
    history: list[Message] = [*first.messages, {"role": "assistant", "content": "."}]
    batch = engine.plan_window([request("n", "o", messages=history), request("o", "n", messages=history)])
    assert [len(plan.hints) for plan in batch] == [1, 1]


@pytest.mark.parametrize("fields", [{"strategy": "none"}, {"strategy": "paper"}, {"schedule": "arrival"}])
def test_other_strategies_and_schedules_plan_a_batch(fields: dict[str, str]):
    waiting = [request(*blocks) for blocks in ("abx", "pq1", "yba", "q2p")]
    window = ReuseEngine(EngineConfig(**fields)).plan_window(waiting)  # type: ignore[arg-type]
    batch = ReuseEngine(EngineConfig(**fields)).plan_batch(waiting)  # type: ignore[arg-type]
    assert window.schedule == batch.schedule
    assert [plan.order for plan in window] == [plan.order for plan in batch]


def test_a_refused_window_changes_nothing():
    engine = ReuseEngine()
    engine.plan(request("a").blocks, request_id="taken")
    before = engine.stats()
    for wrong in ([request("a"), 5], [request("a"), request("b", request_id="taken")]):
        with pytest.raises(ValueError):
            engine.plan_window(wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestTypeError, match="True or False"):
        engine.plan_window([request("a")], commit=None)  # type: ignore[arg-type]
    assert engine.stats() == before
    engine.check_integrity()


def test_a_window_in_flight_can_be_taken_back():
    engine = ReuseEngine()
    waiting = [request("a", "b", request_id="1"), request("b", "a", request_id="2")]
    for plan in engine.plan_window(waiting, commit=False):
        assert engine.abandon(plan)
    assert engine.stats().known_blocks == 0
    assert engine.plan_window(waiting).plans[0].request_id == "1"
    engine.check_integrity()


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(st.lists(contexts, max_size=7), max_size=3), st.booleans())
def test_every_plan_is_whole(config: EngineConfig, windows: list[list[list[str]]], commit: bool):
    engine = ReuseEngine(config)
    for stream in windows:
        batch = engine.plan_window([ContextRequest(blocks=blocks, query="q") for blocks in stream], commit=commit)
        assert sorted(batch.schedule) == list(range(len(stream)))
        assert [plan.request.blocks for plan in batch] == [tuple(blocks) for blocks in stream]
        for plan in batch:
            check_plan(plan, config)
        engine.check_integrity()


def test_equal_windows_are_planned_equally():
    rng = random.Random(3)
    windows = [[request(*rng.sample("abcdefghijkl", 5)) for _ in range(12)] for _ in range(5)]

    def run() -> list[object]:
        engine = ReuseEngine(EngineConfig(cache_tokens=3_000))
        batches = [engine.plan_window(window) for window in windows]
        return [(batch.schedule, [plan.order for plan in batch]) for batch in batches]

    assert run() == run()


def test_windows_find_more_than_one_by_one():
    rng = random.Random(5)
    waiting = [request(*rng.sample(topic, 4)) for _ in range(30) for topic in ("abcdef", "ghijkl", "mnopqr")]
    config = EngineConfig(note="none", kv_block=1, cache_tokens=1_500)
    one_by_one, windows = ReuseEngine(config), ReuseEngine(config)
    alone = sum(one_by_one.plan(each.blocks).expected_reused_tokens for each in waiting)
    together = sum(reused(windows.plan_window(waiting[start : start + 10])) for start in range(0, 90, 10))
    assert together > alone


def test_windows_of_several_threads():
    engine = ReuseEngine(EngineConfig(cache_tokens=2_000))

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(15):
            engine.plan_window([request(*rng.sample("abcdefghij", 4)) for _ in range(6)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.check_integrity()
    assert engine.stats().planned == 4 * 15 * 6
