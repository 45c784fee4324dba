"""Workers in front of one serving engine that tells what it caches: each plans on what the others have sent."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import EngineConfig
from contextpilot_core.journal.operations import Recorded
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.testing import ManualClock
from tests.core.engine.test_events import KV_BLOCK, TEXTS, Stack, drop, text_of
from tests.core.kv_engine import Engine
from tests.core.memory_log import MemoryLog, Worker

SMALL = {"cache_tokens": 2 * len(TEXTS[0])}


class Member(Stack):
    """One worker; ``group`` are all of them, whose mirrors hear the same events."""

    def __init__(self, group, log, serving, clock, follow=True):
        self.group, self.serving, self.clock = group, serving, clock
        self.mirror = KVMirror(block_size=KV_BLOCK)
        self.worker = Worker(log, token_counter=len, clock=clock, mirror=self.mirror if follow else None)
        self.engine = self.worker.engine
        self.worker.join()
        group.append(self)

    @property
    def records(self):
        return [entry for entry in self.worker.log.entries if isinstance(entry.operation, Recorded)]

    def publish(self):
        events = self.serving.take()
        for member in self.group:
            member.mirror.apply(events)

    def cached(self, *numbers):
        """How many of the leading texts the view finds in the cache."""
        self.engine._namespaces.clock.ask()
        index = self.engine._namespaces._namespace("default").index
        path = [index.blocks.find(body_digest(TEXTS[number])) for number in numbers]
        return self.view.cached_blocks(path)

    @property
    def view(self):
        return self.engine._namespaces._namespace("default").index.view


def members(number=2, follow=(), **options):
    group, clock = [], ManualClock()
    log, serving = MemoryLog(EngineConfig(kv_block=KV_BLOCK, note="none", **options)), Engine(size=KV_BLOCK)
    for place in range(number):
        Member(group, log, serving, clock, follow=place not in follow)
    return group


def exchange(*group):
    for member in group:
        member.worker.send()
    for member in group:
        member.worker.receive()
        member.engine.check_integrity()


def order(numbers, plan):
    return [numbers[position] for position in plan.order]


def test_a_head_that_only_another_worker_sent_is_followed_when_the_estimate_forgot_it():
    one, two = members(**SMALL)
    one.ask((0, 1))
    one.ask((2, 3))
    one.clock.advance(2)
    exchange(one, two)
    wanted = (4, 5, 1, 0)
    observation, plan = two.ask(wanted)
    assert order(wanted, plan) == [0, 1, 4, 5]
    assert observation.source == "events"
    assert observation.predicted == observation.reported > len(TEXTS[0] + TEXTS[1])


def test_a_head_of_another_worker_that_was_evicted_is_not_chased():
    one, two = members()
    one.ask((0, 1))
    one.ask((2, 3))
    one.clock.advance(2)
    exchange(one, two)
    drop(one, lambda text: TEXTS[0] in text or TEXTS[0].startswith(text[-3:]))
    wanted = (4, 1, 0, 3, 2)
    observation, plan = two.ask(wanted)
    assert order(wanted, plan)[:2] == [2, 3]
    assert observation.predicted == observation.reported > len(TEXTS[2])


def test_events_may_come_a_little_after_the_news():
    one, two = members()
    one.ask((0, 1), tell=False)
    exchange(one, two)
    assert two.cached(0, 1) == 2
    one.clock.advance(2)
    assert two.cached(0, 1) == 0
    one.publish()
    assert two.cached(0, 1) == 2


def test_turns_may_change_their_worker():
    one, two = members(**SMALL)
    _, first = one.ask((0, 1), instructions="Answer briefly.")
    exchange(one, two)
    history = [*first.messages, {"role": "assistant", "content": "The oak."}]
    observation, second = two.ask((2, 1), messages=history)
    assert second.hints
    exchange(one, two)
    one.clock.advance(2)
    observation, _ = one.ask((3, 2), messages=[*second.messages, {"role": "assistant", "content": "Elm."}])
    assert observation.predicted == observation.reported > 2 * len(TEXTS[0])


def test_own_news_that_come_back_are_no_news():
    one, two = members()
    one.ask((0, 1))
    exchange(one, two)
    before = one.engine.stats()
    one.worker.state.deliver(one.worker.log.entries, every=5)
    one.engine.check_integrity()
    assert one.engine.stats() == before


def test_what_is_told_is_no_part_of_the_state():
    one, two, three = members(3, follow=(2,))
    one.ask((0, 1))
    exchange(one, two, three)
    assert len(one.records) == 1
    states = [member.worker.state.snapshot() for member in (one, two, three)]
    assert states[0] == states[1] == states[2] == one.worker.log.state().snapshot()
    late = Member(one.group, one.worker.log, one.serving, one.clock)
    assert late.worker.state.snapshot() == states[0]
    assert not late.engine._namespaces._known  # it knows what comes after that
    one.ask((2, 3))
    exchange(*one.group)
    assert late.cached(2, 3) == 2


def test_a_worker_without_events_neither_tells_nor_listens():
    one, blind = members(2, follow=(1,))
    blind.ask((0, 1))
    exchange(one, blind)
    assert not one.records
    one.ask((2, 3))
    exchange(one, blind)
    assert list(blind.engine._namespaces._known) == ["default"]
    assert blind.engine.stats().source == "estimate"


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("what", ["evict", "reset"])
def test_what_a_worker_forgets_the_others_forget(by, what):
    group = one, two = members()
    _, plan = one.ask((0, 1))
    exchange(one, two)
    if what == "evict":
        assert group[by].engine.evict([plan.request_id]).evicted == (plan.request_id,)
    else:
        group[by].engine.reset()
    exchange(one, two)
    for member in group:
        assert member.cached(0, 1) == 0
        member.engine.check_integrity()
        assert not member.view.references()


def test_news_of_what_was_forgotten_since_are_left_out():
    one, two = members()
    _, plan = one.ask((0, 1))
    two.ask((2,))
    one.worker.send()
    two.engine.reset("default")
    two.worker.receive()
    assert two.cached(0, 1) == 0  # its own reset comes after that in the log
    exchange(one, two)
    exchange(one, two)
    assert one.cached(0, 1) == two.cached(0, 1) == 0


def test_out_of_reach_of_the_log_nothing_is_told():
    one, two = members()
    one.worker.leave()
    one.ask((0, 1))
    one.worker.join()
    exchange(one, two)
    assert not one.records
    assert two.engine.stats().live_requests == 1


def test_news_are_bounded(monkeypatch):
    monkeypatch.setattr("contextpilot_core.engine.namespace._MOST_KEYS", 20)
    one, two = members()
    one.ask((0, 1, 2, 3))
    exchange(one, two)
    news = one.records[0].operation
    assert len(news.keys) <= 16 * 21
    assert news.ends[-1] is None
    one.clock.advance(2)
    assert two.cached(0, 1, 2, 3) == 1


def test_a_silent_worker_stays_on_the_estimate():
    one, two = members()
    two.engine.plan([TEXTS[0]])
    two.clock.advance(EngineConfig().in_flight_seconds)
    for _ in range(2):
        one.ask((1, 2))
        exchange(one, two)
        assert not two.view.on_truth


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "send", "receive", "forget", "evict", "reset", "leave", "clear", "wait"]),
        st.integers(0, 2),
        st.integers(0, 2**16),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sampled_from([{}, {**SMALL, "max_requests": 3}]))
def test_whatever_happens_predictions_hold_and_all_stay_sound(steps, options):
    group = members(3, **options)
    plans = []
    for step, place, chance in steps:
        member = group[place]
        if step == "ask":
            numbers = tuple(dict.fromkeys((chance >> shift) % 6 for shift in range(0, 3 * (1 + chance % 3), 3)))
            observation, plan = member.ask(numbers, tell=True, request_id=f"p{len(plans)}")
            assert observation.predicted == observation.reported
            plans.append(plan)
        else:
            happen(member, step, plans, chance)
        member.engine.check_integrity()
    exchange(*group)
    group[0].clock.advance(2)
    for member in group:
        check_promises(member)
    states = [member.worker.state.snapshot() for member in group]
    assert states[0] == states[1] == states[2]


def happen(member, step, plans, chance):
    worker = member.worker
    if step == "send":
        worker.send(chance % 5)
    elif step == "receive":
        worker.receive(chance % 7)
    elif step == "forget" and plans:
        member.engine.evict([plans[chance % len(plans)].request_id])
    elif step == "evict":
        member.serving.evict(chance)
        member.publish()
    elif step == "reset" and not chance % 4:
        member.engine.reset("default")
    elif step == "leave":
        (worker.join if worker.away else worker.leave)()
    elif step == "clear" and not chance % 4:
        member.serving.reset()
        member.publish()
    elif step == "wait":
        member.clock.advance(0.6)


def check_promises(member):
    """What the view finds cached, of any pair of texts, the serving engine holds."""
    held = [text_of(prefix) for prefix, _, _ in member.serving.copies.elements()]
    for pair in permutations(range(6), 2):
        if member.view.on_truth and member.cached(*pair) == 2:
            assert any(in_order(text, *pair) for text in held)


def in_order(text, *numbers):
    """Whether all but the last KV block of the texts stand in a text, one behind the other."""
    first, second = (TEXTS[number] for number in numbers)
    return text.find(first) < text.find(second[: -2 * KV_BLOCK], len(first)) < len(first) + 2 * len(second)
