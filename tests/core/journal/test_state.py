"""One worker's copy of what all share: own operations go out and come back, or never do, and the copies are equal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import (
    ConfigError,
    ContextRequest,
    DuplicateRequestError,
    EngineConfig,
    IntegrityError,
    ReuseEngine,
)
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheState, CacheView
from contextpilot_core.journal.operations import Committed, Inserted, Released, Rendered, Reset
from contextpilot_core.testing import ManualClock
from tests.core.memory_log import SIZES, TEXTS, MemoryLog, Worker, exchange, order, reuse, workers


def test_what_was_reset_is_gone_at_once_here_and_later_there():
    one, two = workers()
    order(one, 0, 1)
    exchange(one, two)
    late = two.engine.plan([TEXTS[2]], commit=False)
    one.engine.reset("default")
    assert reuse(one, TEXTS[0]) == 0 < reuse(two, TEXTS[0])
    order(one, 3, 4)
    exchange(one, two)
    assert reuse(two, TEXTS[0]) == 0 < reuse(two, TEXTS[3])
    assert not two.engine.commit(late)


def test_reset_of_everything_spares_the_counters_of_other_workers():
    one, two = workers()
    for worker in (one, two):
        worker.engine.plan([TEXTS[0]], namespace="a")
        worker.engine.plan([TEXTS[0]], namespace="b")
    exchange(one, two)
    one.engine.reset()
    exchange(one, two)
    assert one.state.snapshot().namespaces == two.state.snapshot().namespaces == ()
    assert (one.engine.stats().planned, two.engine.stats().planned) == (0, 2)


def test_a_conversation_may_go_on_at_another_worker():
    one, two = workers()
    first = one.engine.plan([TEXTS[0], TEXTS[1]], query="q")
    history = [*first.messages, {"role": "assistant", "content": "a"}]
    exchange(one, two)
    second = two.engine.plan([TEXTS[1], TEXTS[2]], query="r", messages=history)
    assert [hint.label for hint in second.hints] == [2]
    assert second.labels == (2, 3)
    exchange(one, two)
    one.engine.evict([first.request_id])
    exchange(one, two)
    third = one.engine.plan([TEXTS[0]], messages=[*second.messages, {"role": "assistant", "content": "b"}])
    assert [hint.label for hint in third.hints] == [1]  # the second request holds the record, too


def test_a_record_that_no_request_holds_is_gone_everywhere():
    one, two = workers()
    first = one.engine.plan([TEXTS[0]], query="q")
    history = [*first.messages]
    exchange(one, two)
    two.engine.evict([first.request_id])
    exchange(one, two)
    for worker in (one, two):
        assert [hint.label for hint in worker.engine.plan([TEXTS[0]], messages=history).hints] == []


def test_records_grow_old_by_the_time_of_the_log():
    one, two = workers(message_seconds=3.5)
    first = one.engine.plan([TEXTS[0]], query="q")
    history = [*first.messages]
    exchange(one, two)
    again = two.engine.plan([TEXTS[0]], messages=history, commit=False, remember=False)
    assert [hint.label for hint in again.hints] == [1]
    for name in range(5):
        order(one, name)
    exchange(one, two)
    assert all(not namespace.records for namespace in one.state.snapshot().namespaces)
    assert [hint.label for hint in two.engine.plan([TEXTS[0]], messages=history).hints] == []


def test_the_owner_takes_back_a_plan_whose_time_is_over():
    log = MemoryLog(EngineConfig(in_flight_seconds=10))
    clock = ManualClock()
    one, two = Worker(log, clock=clock), Worker(log)
    for worker in (one, two):
        worker.join()
    one.engine.plan([TEXTS[0]], commit=False)
    exchange(one, two)
    assert two.engine.stats().live_requests == 1
    clock.advance(11)
    assert one.engine.stats().expired == 1
    exchange(one, two)
    assert two.engine.stats().live_requests == 0


def test_the_papers_trees_let_go_of_what_left_the_shared_view():
    one, two = workers(strategy="paper", cache_tokens=SIZES["tight"])
    for name in range(3):
        order(one, name)
    exchange(one, two)
    for name in range(3, 9):
        order(two, name)
    exchange(one, two)
    assert one.engine.stats().evictions > 0
    for name in range(3):
        order(one, name, 8)
    one.join()
    one.engine.check_integrity()


def test_alone_it_plans_as_an_engine_without_a_journal():
    """Until the log is there, and when it is gone, own operations change the state at once."""
    one = workers(1)[0]
    order(one, 5, 6)
    one.leave()
    assert one.state.snapshot().entries == 1
    order(one, 7, 8)
    order(one, 0, request_id="x")
    assert one.engine.evict(["x"]).freed_tokens > 0
    assert one.state.snapshot().entries == 4
    one.engine.reset()
    assert one.engine.stats().live_requests == reuse(one, TEXTS[5]) == 0


def test_operations_that_the_log_lacks_are_sent_when_it_is_there_again():
    one, two = workers()
    order(one, 0)
    exchange(one, two)
    for worker, name in ((one, 1), (two, 2)):
        worker.leave()
        order(worker, name)
    empty = MemoryLog(one.log.config, seed=one.state.snapshot())
    for worker in (one, two):
        worker.join(empty)
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot()
    assert all(reuse(two, TEXTS[name]) > 0 for name in range(3))


def test_a_log_that_went_back_gets_again_what_it_lost():
    one, two = workers()
    order(one, 0)
    exchange(one, two)
    order(one, 1)
    order(two, 2)
    exchange(one, two)
    del one.log.entries[1:]
    for worker in (one, two):
        worker.leave()
        worker.join()
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot()
    assert all(reuse(two, TEXTS[name]) > 0 for name in range(3))


def test_too_many_operations_for_the_log_are_told(monkeypatch, caplog):
    monkeypatch.setattr("contextpilot_core.journal.state._MOST_WAITING", 3)
    one, two = workers()
    for name in range(6):
        order(one, name)
    one.engine.check_integrity()
    assert one.engine.stats().live_requests == 3  # the others wait for the log in vain
    one.join()
    assert "3 operations" in caplog.text
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot()
    assert [reuse(two, TEXTS[name]) > 0 for name in range(6)] == [False] * 3 + [True] * 3


def test_only_the_latest_operations_are_kept_after_they_came_back(monkeypatch):
    monkeypatch.setattr("contextpilot_core.journal.state._KEPT", 2)
    one, two = workers()
    for name in range(5):
        order(one, name)
        exchange(one, two)
    assert [entry.number for entry in one.state.own_after(0, most=9)] == [3, 4, 5]
    one.log.entries.clear()
    for worker in (one, two):
        worker.leave()
        worker.join()
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot()
    assert [reuse(two, TEXTS[name]) > 0 for name in range(5)] == [False] * 2 + [True] * 3


def test_a_copy_that_is_not_trusted_gives_way_to_the_own_operations():
    one, two = workers()
    order(one, 0, 1)
    order(two, 2)
    exchange(one, two)
    order(one, 3)  # has not come back yet
    one.away = True
    one.state.restart()
    assert one.state.snapshot().entries == 2
    assert [reuse(one, TEXTS[name]) > 0 for name in range(4)] == [True, False, False, True]  # 1 follows 0
    one.engine.check_integrity()
    order(one, 4)
    exchange(one, two)
    assert one.state.snapshot() == two.state.snapshot() == one.log.state().snapshot()
    assert [reuse(one, TEXTS[name]) > 0 for name in range(5)] == [True, False, True, True, True]


def test_an_operation_that_a_worker_never_made_is_known_by_its_number():
    one, two = workers()
    order(one, 0)
    name = one.state.worker
    assert not one.state.forged([(name, 1), (two.state.worker, 9)])
    assert one.state.forged([(two.state.worker, 9), (name, 2)])
    assert not two.state.forged([(name, 2)])


def test_integrity_check_reaches_the_copy():
    one = workers(1)[0]
    order(one, 0)
    one.leave()
    one.state.namespaces["default"].blocks.intern(b"nobody's", lambda: 1)
    with pytest.raises(IntegrityError, match="2 references to 2 blocks"):
        one.state.check_integrity()


def test_a_journal_is_no_url():
    with pytest.raises(ConfigError, match="journal must be a Journal or None, got str"):
        ReuseEngine(journal="redis://localhost")


def test_every_so_manyth_entry_names_one_worker():
    one, two = workers()
    for name in range(3):
        order(one, name)
        order(two, name)
    for worker in (one, two, one, two, one, two):
        worker.send(1)
    assert (one.receive(), two.receive()) == (True, False)  # the fifth of six was the first worker's


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2**20)), max_size=80)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, size=st.sampled_from(sorted(SIZES)), strategy=st.sampled_from(["greedy", "paper"]))
def test_whatever_happens_equal_logs_make_equal_states(steps, size, strategy):
    made = workers(3, cache_tokens=SIZES[size], strategy=strategy, max_requests=12, max_messages=4)
    histories: list[list[dict[str, object]]] = [[]]
    plans = [[], [], []]
    for action, place, chance in steps:
        act(made[place], plans[place], histories, action, chance)
        made[place].engine.check_integrity()
    exchange(*made)
    states = [worker.state.snapshot() for worker in made]
    assert states[0] == states[1] == states[2] == made[0].log.state().snapshot()
    for worker in made:
        worker.engine.check_integrity()
    compare_with_plain_view(made[0])


def act(worker, plans, histories, action, chance):
    names = [(chance >> shift) % len(TEXTS) for shift in range(0, (chance % 4) * 4, 4)]
    if action < 4:
        history = histories[chance % len(histories)]
        request_id = f"r{chance % 9}" if action == 0 else None
        options = {"messages": history, "query": f"q{chance % 3}", "request_id": request_id, "commit": action < 3}
        try:
            plans.append(worker.engine.plan([TEXTS[name] for name in names], **options))
        except DuplicateRequestError:
            return
        if chance % 2:
            histories.append([*plans[-1].messages])
    elif action == 4 and plans:
        (worker.engine.commit if chance % 2 else worker.engine.abandon)(plans[chance % len(plans)])
    elif action == 5:
        worker.engine.evict([f"r{chance % 9}", *(plan.request_id for plan in plans[:1])])
    elif action == 6:
        worker.send(chance % 5)
    elif action == 7:
        worker.receive(chance % 7)
    elif action == 8:
        happen(worker, plans, chance)
    elif action == 9:
        requests = [ContextRequest(blocks=[TEXTS[name], TEXTS[chance % 9]]) for name in names]
        plans.extend(worker.engine.plan_batch(requests))


def happen(worker, plans, chance):
    """Something that is rare."""
    kind = chance % 5
    if kind == 0:
        worker.engine.reset("default" if chance % 2 else None)
    elif kind == 1:
        worker.leave()
    elif kind == 2:
        worker.join()
    elif kind == 3:
        worker.sent = max(0, worker.sent - chance % 4)  # a reply was lost: sent again
    elif kind == 4 and worker.log.entries:
        worker.state.deliver(worker.log.entries[: worker.read], every=5)  # read again


def compare_with_plain_view(worker: Worker) -> None:
    """The shared view is what one view would hold that was told the same in the same order."""
    blocks, view = plain_view(worker)
    seen: set[tuple[str, int]] = set()
    for entry in worker.log.entries:
        operation = entry.operation
        if (entry.worker, entry.number) in seen or isinstance(operation, (Committed, Rendered)):
            continue
        seen.add((entry.worker, entry.number))
        if isinstance(operation, Reset):
            blocks, view = plain_view(worker)
            continue
        view.release(operation.request_id)
        if isinstance(operation, Inserted):
            path = [blocks.intern(digest, lambda tokens=tokens: tokens) for digest, tokens in operation.path]
            view.admit(path, operation.request_id)
            blocks.release(path)
        else:
            assert isinstance(operation, Released)
    logged = worker.state.logged("default")
    if logged is None:
        assert len(view) == view.tokens == 0
        return
    assert by_digest(logged.view.state(), logged.blocks) == by_digest(view.state(), blocks)


def plain_view(worker: Worker) -> tuple[BlockTable, CacheView]:
    config, blocks = worker.log.config, BlockTable()
    return blocks, CacheView(blocks, capacity=config.cache_tokens, max_requests=config.max_requests)


def by_digest(state: CacheState, blocks: BlockTable) -> tuple[object, ...]:
    nodes = [(parent, [blocks.digest(block) for block in run]) for parent, run in state.nodes]
    return nodes, state.recency, state.requests, state.admissions
