"""One namespace: requests open, settled, in flight, committed, taken back, expired, evicted; against a plain model."""

from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contextpilot_core import (
    ContextRequest,
    DuplicateRequestError,
    EngineConfig,
    Plan,
    PromptTokens,
    RequestTypeError,
    ReuseEngine,
)
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.cache.view import Ends, Keys, Located
from contextpilot_core.engine.namespace import Namespace
from contextpilot_core.errors import IntegrityError
from contextpilot_core.journal.operations import Recorded
from contextpilot_core.mirror.keys import KEY_BYTES, closed, opened
from contextpilot_core.mirror.reports import CacheReports
from contextpilot_core.plan.request import Job, prepare
from contextpilot_core.prompt.messages import body_digest, plain
from contextpilot_core.testing import ManualClock
from contextpilot_core.tokens import Weights, estimate_tokens
from tests.core.conftest import body

A, B, C = (body(name) for name in "abc")
LONG = EngineConfig(in_flight_seconds=10, message_seconds=1_000, note="none")


def request(*names: object, **fields: object) -> ContextRequest:
    return ContextRequest(blocks=[body(name) for name in names], **fields)  # type: ignore[arg-type]


# -- through the engine ------------------------------------------------------------------------------------------


def test_a_plan_in_flight_is_visible_and_can_be_committed_twice():
    engine = ReuseEngine(EngineConfig(note="none"))
    plan = engine.plan([A, B], commit=False)
    assert engine.stats().in_flight == 1
    assert engine.plan([B, A]).order == (1, 0)
    assert engine.commit(plan)
    assert engine.commit(plan)
    assert engine.stats().committed == 2
    assert not engine.abandon(plan)


def test_an_abandoned_plan_leaves_nothing():
    engine = ReuseEngine(EngineConfig(note="none"))
    plan = engine.plan([A, B], commit=False)
    assert plan.messages
    assert engine.abandon(plan)
    assert not engine.abandon(plan)
    assert not engine.commit(plan)
    assert engine.plan([B, A], request_id=plan.request_id).order == (0, 1)
    engine.check_integrity()


def test_a_plan_in_flight_expires():
    clock = ManualClock()
    engine = ReuseEngine(EngineConfig(note="none", in_flight_seconds=60), clock=clock)
    plan = engine.plan([A, B], commit=False)
    clock.advance(59)
    assert engine.stats().in_flight == 1
    clock.advance(1)
    assert not engine.commit(plan)
    stats = engine.stats()
    assert (stats.in_flight, stats.expired, stats.cached_tokens, stats.known_blocks) == (0, 1, 0, 0)


def test_plans_of_a_reset_or_another_engine_are_not_committed():
    engine = ReuseEngine()
    plan = engine.plan([A], commit=False)
    done = engine.plan([B])
    assert not ReuseEngine().commit(plan)
    engine.reset()
    assert not engine.commit(plan)
    assert not engine.commit(done)
    assert not engine.abandon(plan)
    with pytest.raises(RequestTypeError, match="Plan"):
        engine.commit("r1")  # type: ignore[arg-type]


def test_a_live_request_id_is_refused_before_anything_changes():
    engine = ReuseEngine()
    engine.plan([A], request_id="mine")
    before = engine.stats()
    with pytest.raises(DuplicateRequestError, match="'mine' is already live"):
        engine.plan([B], request_id="mine")
    with pytest.raises(ValueError, match="already live"):
        engine.plan_batch([request("c", request_id="new"), request("d", request_id="mine")])
    with pytest.raises(DuplicateRequestError):
        engine.plan_batch([request("c", request_id="twice"), request("d", request_id="twice")])
    assert engine.stats() == before
    engine.check_integrity()
    engine.plan([A], request_id="mine", namespace="other")
    engine.plan([A], request_id="new")
    engine.plan([A], request_id="twice")


def test_generated_ids_skip_live_ones():
    engine = ReuseEngine()
    engine.plan([A], request_id="r1")
    assert engine.plan([A]).request_id == "r2"


def test_committing_an_evicted_plan_returns_false():
    engine = ReuseEngine()
    plan = engine.plan([A], request_id="x")
    assert engine.commit(plan)
    engine.evict(["x"])
    assert not engine.commit(plan)
    engine.plan([A], request_id="x")
    assert not engine.commit(plan)


# -- the namespace itself ----------------------------------------------------------------------------------------


class Learning(CacheView):
    """An estimate that writes down what it is told of KV blocks."""

    def __init__(self, blocks: BlockTable, config: EngineConfig) -> None:
        super().__init__(blocks, capacity=config.cache_tokens, max_requests=config.max_requests)
        self.told: list[object] = []
        self.located: Located | None = None

    def record(self, request_id: str, context: int, keys: Keys, counts: Ends) -> Located | None:
        self.told.append((request_id, context, keys, counts))
        return self.located

    def learn(self, request_id: str, located: Located) -> None:
        self.told.append((request_id, located))


class Home:
    """A namespace, its clock, and names for requests without one."""

    def __init__(self, config: EngineConfig = LONG, seal: Any = plain) -> None:
        self.config, self.clock, blocks = config, ManualClock(), BlockTable()
        self.view = Learning(blocks, config)
        reports = CacheReports(config, None, self.clock)
        self.space = Namespace(config, estimate_tokens, seal, self.clock, blocks, self.view, None, reports, RLock())

    def ids(self) -> Iterator[str]:
        return map("r{}".format, range(1, 999))

    def prepare(self, *blocks: str, **fields: Any) -> Job:
        return prepare(ContextRequest(blocks=blocks, **fields), self.config, Weights(estimate_tokens))

    def open(self, *blocks: str, **fields: Any) -> Job:
        job = self.prepare(*blocks, **fields)
        self.space.open(job, self.ids())
        return job

    def settle(self, *blocks: str, commit: bool = True, order: Sequence[int] | None = None, **fields: Any) -> Plan:
        given = None if order is None else tuple(order)
        return self.space.settle(self.open(*blocks, **fields), commit=commit, order=given)

    def job(self, plan: Plan) -> Job:
        found = self.space.job_of(plan)
        assert found is not None
        return found

    def is_empty(self) -> bool:
        self.space.check_integrity()
        parts: tuple[Any, ...] = (self.space.index.blocks, self.view, self.space.conversations, self.space.in_flight)
        return not any(map(len, parts)) and not self.space._opened


def test_opening_takes_an_id_and_closing_gives_it_back():
    home = Home()
    one, two = home.open(A, request_id="r1"), home.open(B)
    assert (one.request_id, two.request_id) == ("r1", "r2")  # r1 is taken
    assert one.home is two.home is home.space
    assert (one.state, len(home.space.index.blocks)) == ("open", 2)
    with pytest.raises(DuplicateRequestError, match="request_id='r2' is already live .* evict it first"):
        home.open(C, request_id="r2")
    assert len(home.space.index.blocks) == 2
    for job in (one, two):
        home.space.close(job)
    assert home.is_empty()
    assert home.open(A, request_id="r2").request_id == "r2"


def test_settling_closes_and_the_next_finds_what_was_settled():
    home = Home()
    plan = home.settle(A, B, commit=False)
    job = home.job(plan)
    assert (job.state, job.deadline, job.path) == (
        "in flight",
        10,
        ((body_digest(A), estimate_tokens(A)), (body_digest(B), estimate_tokens(B))),
    )
    assert list(home.space.in_flight) == ["r1"]
    assert not home.space._opened
    assert home.settle(C, B, A).order == (2, 1, 0)
    home.space.check_integrity()


def test_an_order_from_elsewhere_is_kept():
    home = Home()
    plan = home.settle(A, B, C, order=(2, 0))
    assert plan.order == (2, 0)
    assert [digest for digest, _ in home.job(plan).path] == [body_digest(C), body_digest(A)]


def test_a_tree_keeps_what_was_settled_and_lets_go_of_what_was_only_opened():
    home = Home(EngineConfig(strategy="paper"))
    trees = home.space.index.paper
    assert trees is not None
    job = home.open(A, B)
    trees.arrange((), {job.request_id: tuple(job.ids.values())}, None)
    home.space.close(job)
    assert not trees.knows(())
    home.settle(A, B)
    assert trees.knows(())
    home.space.evict("r1")
    assert home.is_empty() and not trees.knows(())


@pytest.mark.parametrize("part", ["choose", "keep"])
def test_settling_that_breaks_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch, part: str):
    home = Home(EngineConfig(strategy="paper"))

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(f"contextpilot_core.engine.namespace.{part}", broken)
    with pytest.raises(ZeroDivisionError):
        home.settle(A, order=(0,) if part == "keep" else None)
    assert home.is_empty()


def test_what_is_expected_is_what_a_plan_would_say_and_leaves_nothing():
    home = Home()
    home.settle(A, B, request_id="held")
    before = home.view.state()
    job = home.prepare(B, A)
    assert home.space.expect(job) > 0
    assert home.view.state() == before
    assert not home.space._opened
    assert home.settle(B, A).expected_reused_tokens == job.expected_tokens
    home.space.check_integrity()


def test_jobs_are_found_by_their_own_plans_only():
    home, other = Home(), Home()
    plan = home.settle(A)
    assert home.space.job_of(plan) is home.job(plan)
    assert other.space.job_of(plan) is None
    twin = other.settle(A)
    assert twin.request_id == plan.request_id
    assert home.space.job_of(twin) is None
    home.space.evict("r1")
    assert home.space.job_of(plan) is None
    assert home.space.job_of(home.settle(A, request_id="r1")) is not None
    assert home.space.job_of(plan) is None  # the id is taken by another


def test_time_takes_back_what_was_not_confirmed():
    home = Home()
    late = home.settle(A, commit=False)
    home.clock.advance(4)
    soon, sent = home.settle(B, commit=False), home.settle(C)
    home.clock.advance(6)
    assert home.space.job_of(late) is None
    assert (list(home.space.in_flight), home.space.counters.expired) == (["r2"], 1)
    home.clock.advance(99)
    home.space.expire()
    home.space.expire()
    assert (len(home.space.in_flight), home.space.counters.expired) == (0, 2)
    assert home.space.job_of(soon) is None and home.job(sent).state == "committed"
    home.space.check_integrity()


def test_opening_settling_and_asking_look_at_the_time_first():
    for step in (Home.open, lambda home, text: home.space.expect(home.prepare(text))):
        home = Home()
        home.settle(A, request_id="mine", commit=False)
        home.clock.advance(10)
        step(home, B)
        assert home.space.counters.expired == 1


def test_evicting_says_what_went():
    home = Home()
    home.settle(A, B)
    home.settle(A, C)
    assert home.space.evict("r1") == estimate_tokens(B)
    assert home.space.evict("r1") is None
    assert home.space.evict("nobody") is None
    waiting = home.settle(B, commit=False)
    assert home.space.evict(waiting.request_id) == estimate_tokens(B)
    assert not home.space.in_flight
    home.space.evict("r2")
    assert home.is_empty()


def test_a_request_whose_blocks_are_gone_may_still_hold_messages():
    home = Home(EngineConfig(cache_tokens=estimate_tokens(A)))
    plan = home.settle(A)
    assert plan.shown is not None
    text, record = plan.shown
    home.space.remember(plan, body_digest(text), record)
    home.settle(B)  # the cache holds one of them
    assert not home.view.holds("r1")
    assert home.space.evict("r1") == 0
    assert home.space.evict("r1") is None


def test_messages_are_remembered_for_plans_that_are_there():
    home = Home()
    plan, gone = home.settle(A, query="q"), home.settle(B, commit=False)
    for each in (plan, gone):
        assert each.shown is not None
    home.space.abandon(home.job(gone))
    for each in (plan, gone):
        text, record = each.shown  # type: ignore[misc]
        home.space.remember(each, body_digest(text), record)
    assert len(home.space.conversations) == 1
    assert home.settle(A, messages=plan.messages).hints[0].label == 1
    home.space.check_integrity()


def test_only_what_was_sent_holds_the_messages_of_its_history():
    home = Home()
    plan = home.settle(A, query="q")
    home.space.remember(plan, body_digest(plan.message_text), plan.shown[1])  # type: ignore[index]
    taken_back = home.settle(B, messages=plan.messages, commit=False)
    home.space.abandon(home.job(taken_back))
    assert home.settle(A, messages=plan.messages).hints != ()
    home.space.evict("r1")
    assert home.settle(A, messages=plan.messages).hints != ()  # the request that was sent last holds it
    home.space.check_integrity()


def test_a_commit_counts_once():
    home = Home()
    job = home.job(home.settle(A, commit=False))
    assert [home.space.commit(job), home.space.commit(job), home.space.abandon(job)] == [True, False, False]
    job = home.job(home.settle(B, commit=False))
    assert [home.space.abandon(job), home.space.abandon(job), home.space.commit(job)] == [True, False, False]
    assert job.state == "gone"


def test_what_is_forgotten_is_gone_for_those_that_wait():
    home = Home()
    job, sent = home.job(home.settle(A, commit=False)), home.job(home.settle(B))
    home.space.forget()
    assert (job.state, sent.state, len(home.space.in_flight)) == ("gone", "committed", 0)


# -- KV blocks ---------------------------------------------------------------------------------------------------

KEYS = tuple(bytes([number]) * KEY_BYTES for number in range(9))


def test_the_view_is_told_where_blocks_end_in_whole_kv_blocks():
    home = Home()
    job = home.job(home.settle(A, B, instructions="Be brief."))
    tokens = PromptTokens(token_ids=range(100), start=15, ends=(33, None))
    assert home.space.observe(job, KEYS[:6], tokens, 16) is None
    assert home.view.told == [("r1", 2, KEYS[:6], [0, 2, None])]


def test_other_processes_are_told_of_the_leading_keys_closed():
    def seal(digest: bytes) -> bytes:
        return body_digest("secret" + digest.hex())[:16]

    home = Home(seal=seal)
    job = home.job(home.settle(A, B, namespace="n"))
    path = tuple(job.context)
    for ends, known in (((2, 4), 4), ((3, None), 3), ((None, 9), 9)):
        home.view.located = Located(path, KEYS, ends)
        news = home.space.observe(job, KEYS, PromptTokens(token_ids=()), 16)
        assert news is not None
        assert (news.namespace, news.request_id, news.path, news.ends) == ("n", "r1", job.path, ends)
        assert opened(news.keys, seal) == KEYS[:known]
    for ends in ((None, None), (0, None)):
        home.view.located = Located(path, KEYS, ends)
        assert home.space.observe(job, KEYS, PromptTokens(token_ids=()), 16) is None


def test_news_of_long_prompts_are_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("contextpilot_core.engine.namespace._MOST_KEYS", 5)
    home = Home()
    job = home.job(home.settle(A, B, C))
    home.view.located = Located(job.context, KEYS, (2, 5, 6))
    news = home.space.observe(job, KEYS, PromptTokens(token_ids=()), 16)
    assert news is not None
    assert (news.ends, opened(news.keys, plain)) == ((2, 5, None), KEYS[:5])


def test_what_another_process_sent_is_learnt_under_ids_of_here():
    home = Home()
    home.settle(A)
    path = ((body_digest(A), estimate_tokens(A)), (b"elsewhere", 7))
    home.space.learn(Recorded("n", "theirs", path, closed(KEYS[:3], plain), (1, 3)))
    [(name, located)] = home.view.told  # type: ignore[misc]
    known = home.space.index.blocks.find(body_digest(A))
    assert (name, located.path[0], located.keys, located.ends) == ("theirs", known, KEYS[:3], (1, 3))
    assert home.space.index.blocks.find(b"elsewhere") is None  # the view did not take it in
    home.space.check_integrity()


# -- whatever happens --------------------------------------------------------------------------------------------


TEXTS = [body(number, 20) for number in range(5)]


class Requests(RuleBasedStateMachine):
    """Which requests are open, in flight, committed or gone, against plain tables."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Home()
        self.space = self.home.space
        self.open: list[Job] = []
        self.waiting: dict[str, tuple[Job, float]] = {}
        self.sent: dict[str, Job] = {}
        self.gone: list[Job] = []
        self.plans: list[Plan] = []  # somebody holds them all
        self.expired = 0

    def expire(self) -> None:
        for name in [name for name, (_, deadline) in self.waiting.items() if deadline <= self.home.clock.now]:
            self.gone.append(self.waiting.pop(name)[0])
            self.expired += 1

    @rule(blocks=st.lists(st.sampled_from(TEXTS), max_size=4), name=st.none() | st.integers(0, 4).map("n{}".format))
    def open_one(self, blocks: list[str], name: str | None) -> None:
        self.expire()
        taken = {job.request_id for job in self.open} | self.waiting.keys() | self.sent.keys()
        if name in taken:
            with pytest.raises(DuplicateRequestError):
                self.home.open(*blocks, request_id=name)
            return
        job = self.home.open(*blocks, request_id=name)
        assert job.request_id not in taken
        self.open.append(job)

    @rule(place=st.integers(0, 9), commit=st.booleans())
    def settle_one(self, place: int, commit: bool) -> None:
        if self.open:
            job = self.open.pop(place % len(self.open))
            self.plans.append(self.space.settle(job, commit=commit))
            if commit:
                self.sent[job.request_id] = job
            else:
                self.waiting[job.request_id] = job, self.home.clock.now + 10

    @rule(place=st.integers(0, 9))
    def close_one(self, place: int) -> None:
        if self.open:
            self.space.close(self.open.pop(place % len(self.open)))

    @rule(place=st.integers(0, 19), what=st.sampled_from(["commit", "abandon", "evict"]))
    def end(self, place: int, what: str) -> None:
        if not self.plans:
            return
        self.expire()
        plan = self.plans[place % len(self.plans)]
        job = self.space.job_of(plan)
        if job is None:
            assert any(plan.belongs_to(gone) for gone in self.gone)
            return
        name = job.request_id
        if what == "evict":
            assert self.space.evict(name) is not None
            self.gone.append(self.waiting.pop(name)[0] if name in self.waiting else self.sent.pop(name))
        elif what == "commit":
            assert self.space.commit(job) == (name in self.waiting)
            if name in self.waiting:
                self.sent[name] = self.waiting.pop(name)[0]
        else:
            assert self.space.abandon(job) == (name in self.waiting)
            if name in self.waiting:
                self.gone.append(self.waiting.pop(name)[0])

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.home.clock.advance(seconds)
        self.space.expire()
        self.expire()

    @invariant()
    def equal(self) -> None:
        if not self.open:
            self.space.check_integrity()
        assert {name: job for name, (job, _) in self.waiting.items()} == self.space.in_flight
        assert all(job.state == "in flight" for job, _ in self.waiting.values())
        assert all(job.state == "committed" for job in self.sent.values())
        assert all(job.state == "gone" for job in self.gone)
        live = self.waiting.keys() | self.sent.keys()
        assert len(self.home.view) == len(live) and all(map(self.home.view.holds, live))
        assert self.space._opened.keys() == {job.request_id for job in self.open}
        assert self.space.counters.expired == self.expired

    def teardown(self) -> None:
        for job in self.open:
            self.space.close(job)
        for name in [*self.waiting, *self.sent]:
            self.space.evict(name)
        assert self.home.is_empty()


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_integrity_check_sees_a_plan_that_is_not_in_flight_and_reaches_its_parts():
    home = Home()
    job = home.job(home.settle(A, commit=False))
    job.state = "committed"
    with pytest.raises(IntegrityError, match="a plan is listed as in flight but is not"):
        home.space.check_integrity()
    job.state = "in flight"
    home.space.check_integrity()
    home.space.conversations._seen[b"nobody's"] = 0
    with pytest.raises(IntegrityError, match="messages"):
        home.space.check_integrity()
    home.space.conversations._seen.clear()
    home.space.index.blocks.acquire(job.context)
    with pytest.raises(IntegrityError, match="the block table"):
        home.space.check_integrity()
