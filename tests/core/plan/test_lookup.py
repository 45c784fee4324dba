"""What a namespace knows of a request: what is shown, its head, what leads; and that everything goes when it should."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contextpilot_core import ContextRequest, EngineConfig
from contextpilot_core.cache import Wanted
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.cache.view import Path
from contextpilot_core.clustering.values import Lead
from contextpilot_core.errors import IntegrityError
from contextpilot_core.plan.lookup import ContextIndex, let_go, look_up
from contextpilot_core.plan.request import Job, prepare
from contextpilot_core.prompt.memory import Conversations
from contextpilot_core.prompt.messages import body_digest, message_digest
from contextpilot_core.prompt.section import render_bodies
from contextpilot_core.testing import ManualClock
from contextpilot_core.tokens import Weights, estimate_tokens
from tests.core.conftest import body

TOKENS = (10, 20, 30, 40, 50, 60)
NONE: frozenset[int] = frozenset()


class Usual(CacheView):
    """A view that knows a usual path besides."""

    path: Path = ()

    def usual(self, head: Sequence[int], wanted: Wanted) -> Path:
        return self.path


def made(**fields: Any) -> tuple[ContextIndex, Usual]:
    """An index whose first ids are 0..5, of so many tokens."""
    config, blocks = EngineConfig(**{"cache_tokens": None, **fields}), BlockTable()
    for number, tokens in enumerate(TOKENS):
        blocks.intern(bytes([number]), lambda tokens=tokens: tokens)
    view = Usual(blocks, capacity=config.cache_tokens, max_requests=config.max_requests)
    return ContextIndex(config, blocks, view), view


# --- the lead


def test_the_longest_cached_path_behind_the_head_leads():
    index, _ = made()
    index.insert("r", (0,), (1, 2, 3))
    index.insert("s", (), (4, 5))
    assert index.lead((0,), (3, 2, 1), NONE, 0) == Lead((1, 2, 3))
    assert index.lead((0,), (3, 1), NONE, 0) == Lead((1,))
    assert index.lead((), (5, 4), NONE, 0) == Lead((4, 5))
    assert index.lead((1,), (5, 4), NONE, 0) == Lead()


def test_selection_allows_so_many_optional_blocks():
    index, _ = made()
    index.insert("r", (), (1, 2, 3))
    assert index.lead((), (1, 2, 3), frozenset({2, 3}), 1) == Lead((1, 2))
    assert index.lead((), (1, 2, 3), frozenset({2, 3}), 0) == Lead((1,))


def test_strategy_none_follows_nothing():
    index, _ = made(strategy="none")
    index.insert("r", (), (1, 2))
    assert index.lead((), (2, 1), NONE, 0) == Lead()
    assert index.paper is None


def test_strategy_paper_follows_its_tree_and_selection_there_too():
    index, _ = made(strategy="paper")
    index.insert("r", (0,), (1, 2, 3))
    assert index.lead((0,), (3, 2, 4), NONE, 0) == Lead((2, 3))
    assert index.lead((), (3, 2, 4), NONE, 0) == Lead()
    assert index.lead((0,), (3, 2, 4), frozenset({3}), 1) == Lead((2, 3))
    assert index.lead((0,), (3, 2, 4), frozenset({2, 3}), 1) == Lead((2,))
    assert index.lead((0,), (3, 2, 4), frozenset({2}), 0) == Lead()


def test_the_search_is_as_long_as_the_configuration_says():
    index, _ = made(max_visits=1)
    index.insert("r", (), (1, 2))
    index.insert("s", (), (1, 3))
    assert index.lead((), (1, 2, 3), NONE, 0) == Lead()  # only the root
    index, _ = made(max_visits=2)
    index.insert("r", (), (1, 2))
    index.insert("s", (), (1, 3))
    assert index.lead((), (1, 2, 3), NONE, 0) == Lead((1,))


def test_what_will_come_again_counts_by_a_quarter():
    index, view = made()
    index.insert("r", (), (2,))  # 30 tokens
    view.path = (5, 4)  # 60 and 50, none of them cached: worth 27
    assert index.lead((), (2, 4, 5), NONE, 0) == Lead((2,))
    view.path = (5, 4, 1)  # worth 32
    assert index.lead((), (1, 2, 4, 5), NONE, 0) == Lead((5, 4, 1), 32)
    view.path = (2, 1)  # what is cached of it counts in full
    assert index.lead((), (1, 2, 4, 5), NONE, 0) == Lead((2, 1), 35)
    index, view = made()
    index.insert("r", (0, 1), (2,))
    view.path = (5, 4)  # the head is cached, and it is no part of the path
    assert index.lead((0, 1), (2, 4, 5), NONE, 0) == Lead((2,))


def test_a_learnt_path_counts_by_half_and_only_as_far_as_it_may_stay():
    index, _ = made()
    index.learn((), [(5, 4)])  # 110 tokens
    assert index.lead((), (4, 5), NONE, 0) == Lead((5, 4), 55)
    assert index.lead((), (4,), NONE, 0) == Lead()
    assert index.lead((0,), (4, 5), NONE, 0) == Lead()  # learnt behind another head
    index.insert("r", (), (4,))  # 50 tokens: still less
    assert index.lead((), (4, 5), NONE, 0) == Lead((5, 4), 55)
    index.insert("s", (), (3, 1))  # 60 tokens
    assert index.lead((), (1, 3, 4, 5), NONE, 0) == Lead((3, 1))
    small, _ = made(cache_tokens=55)  # half of what was learnt
    small.learn((), [(5, 4)])
    assert small.lead((), (4, 5), NONE, 0) == Lead((5, 4), 27)
    assert index.tokens((0, 1, 1)) == 50


paths = st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)


@settings(max_examples=200)
@given(st.lists(paths, max_size=8), paths, paths)
def test_the_lead_is_the_heaviest_live_path_inside_the_request(stored: list[Path], head: Path, wanted: Path):
    index, _ = made()
    for number, path in enumerate(stored):
        index.insert(f"r{number}", (), path)
    found = index.lead(head, wanted, NONE, 0)
    best = 0
    for path in stored:
        if path[: len(head)] == head:
            rest = path[len(head) :]
            inside = next((n for n, block in enumerate(rest) if block not in wanted), len(rest))
            best = max(best, index.tokens(rest[:inside]))
    assert found.promise == 0
    assert index.tokens(found.blocks) == best
    assert not found.blocks or any(path[: len(head + found.blocks)] == head + found.blocks for path in stored)


# --- a request and its messages


def job_of(*blocks: str, config: EngineConfig | None = None, **fields: Any) -> Job:
    return prepare(ContextRequest(blocks=blocks, **fields), config or EngineConfig(), Weights(estimate_tokens))


def looked_up(job: Job, index: ContextIndex, known: Conversations, config: EngineConfig) -> Job:
    look_up(job, index, known, config, estimate_tokens)
    return job


def talk(*texts: str) -> tuple[Conversations, list[dict[str, Any]]]:
    """A conversation that shows texts in a message that was rendered for a request."""
    known = Conversations(limit=10, seconds=100, clock=ManualClock())
    content, record = render_bodies(texts, EngineConfig(), estimate_tokens)
    path = tuple((body_digest(text), estimate_tokens(text)) for text in texts)
    known.record(body_digest(content), replace(record, path=path), "earlier")
    return known, [{"role": "user", "content": content}, {"role": "assistant", "content": "Fine, thank you."}]


def test_a_request_is_looked_up():
    tea, milk, salt = map(body, ("tea", "milk", "salt"))
    (known, history), config = talk(tea, milk), EngineConfig()
    index = ContextIndex(config, BlockTable(), Usual(BlockTable(), capacity=None, max_requests=9))
    job = looked_up(job_of(salt, milk, tea, salt, messages=history), index, known, config)
    assert job.hints == {1: 2, 2: 1}
    assert job.hinted_tokens == estimate_tokens(milk) + estimate_tokens(tea)
    # the head: the blocks of our own message, its rest, then the answer
    assert index.blocks.describe(job.head) == (
        (body_digest(tea), estimate_tokens(tea)),
        (body_digest(milk), estimate_tokens(milk)),
        (
            b"message:" + message_digest(history[0]),
            estimate_tokens(history[0]["content"]) - estimate_tokens(tea) - estimate_tokens(milk),
        ),
        (b"message:" + message_digest(history[1]), estimate_tokens("Fine, thank you.")),
    )
    assert job.head_tokens == estimate_tokens(history[0]["content"]) + estimate_tokens("Fine, thank you.")
    assert job.ids.keys() == {0}
    assert index.blocks.digest(job.ids[0]) == body_digest(salt)
    assert job.sections.labels((1, 0, 2)) == (2, 3, 1)
    let_go(job, index)
    assert len(index.blocks) == 0


def test_a_stateless_request_has_no_head():
    index, _ = made()
    job = looked_up(job_of("a", "b", "a"), index, talk()[0], EngineConfig())
    assert (job.head, job.head_tokens, job.hints, job.hinted_tokens) == ((), 0, {}, 0)
    assert list(job.ids) == [0, 1]
    let_go(job, index)


def test_a_body_that_stands_twice_has_one_id():
    index, _ = made()
    config = EngineConfig(dedup=False)
    job = looked_up(job_of("a", "b", "a", config=config), index, talk()[0], config)
    assert job.ids[0] == job.ids[2] != job.ids[1]
    let_go(job, index)
    index.blocks.check_integrity(dict.fromkeys(range(6), 1))


# --- requests that come and go


def test_what_leaves_the_view_is_counted_and_leaves_the_papers_trees():
    index, _ = made(strategy="paper", cache_tokens=70)
    index.insert("a", (), (0, 1))
    index.insert("b", (), (2, 3))  # 70 tokens: the other one has to go
    assert (index.evictions, index.view.holds("a")) == (1, False)
    assert index.paper is not None and index.paper.matched((), (0, 1)) == ()
    assert index.evict("b") == 70
    assert index.evict("b") is None
    assert index.evictions == 2
    assert not index.paper.knows(())


def test_trees_keep_only_what_is_live():
    index, view = made(strategy="paper")
    index.insert("a", (), (0, 1))
    index.insert("b", (), (2, 3))
    view.release("a")
    index.keep_live()
    assert index.paper is not None
    assert (index.paper.matched((), (0, 1)), index.paper.matched((), (2, 3))) == ((), (2, 3))
    index.cut(["b"])
    assert not index.paper.knows(())
    other, _ = made()
    other.keep_live()  # nothing to keep without trees
    other.cut(["nobody"])
    assert other.evictions == 1


class Index(RuleBasedStateMachine):
    """Requests of one namespace against a list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.config = EngineConfig(strategy="paper", cache_tokens=None, max_requests=6)
        blocks = BlockTable()
        self.index = ContextIndex(self.config, blocks, CacheView(blocks, capacity=None, max_requests=6))
        self.known = Conversations(limit=10, seconds=100, clock=ManualClock())
        self.open: list[Job] = []
        self.live: dict[str, list[bytes]] = {}
        self.learnt: list[list[bytes]] = []
        self.count = 0

    @rule(names=st.lists(st.sampled_from("abcdef"), max_size=4), message=st.sampled_from(["", "hi", "so"]))
    def look_up(self, names: list[str], message: str) -> None:
        history = [{"role": "user", "content": message}] if message else []
        self.open.append(looked_up(job_of(*names, messages=history), self.index, self.known, self.config))

    @rule(choice=st.integers(0, 9), settled=st.booleans(), learnt=st.booleans())
    def finish(self, choice: int, settled: bool, learnt: bool) -> None:
        if not self.open:
            return
        job = self.open.pop(choice % len(self.open))
        context = job.leading(job.positions)
        digests = [self.index.blocks.digest(block) for block in job.head + context]
        if settled:
            name = f"r{self.count}"
            self.count += 1
            self.index.insert(name, job.head, context)
            self.live[name] = digests
            if len(self.live) > 6:
                del self.live[next(iter(self.live))]
        if learnt:
            self.index.learn(job.head, [context])
            self.learnt.append(digests)
        let_go(job, self.index)

    @rule(number=st.integers(0, 12))
    def evict(self, number: int) -> None:
        known = self.live.pop(f"r{number}", None)
        assert (self.index.evict(f"r{number}") is None) == (known is None)

    @invariant()
    def whole(self) -> None:
        if not self.open:
            self.index.check_integrity()
        kept = {digest for path in [*self.live.values(), *self.learnt] for digest in path}
        looked = {self.index.blocks.digest(block) for job in self.open for block in (*job.head, *job.ids.values())}
        assert len(self.index.blocks) == len(kept | looked)
        assert all(self.index.view.holds(name) for name in self.live)
        assert len(self.index.view) == len(self.live)


TestIndex = Index.TestCase
TestIndex.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_integrity_check_reaches_every_part():
    index, view = made()
    with pytest.raises(IntegrityError, match="the block table counts 6 references to 6 blocks"):
        index.check_integrity()  # nobody holds them
    index.insert("r", (), tuple(range(6)))
    index.blocks.release(range(6))
    index.check_integrity()
    index.learn((), [(2, 1)])
    index.check_integrity()
    index._learnt.tokens += 1
    with pytest.raises(IntegrityError, match="tokens"):
        index.check_integrity()
    index._learnt.tokens -= 1
    index.blocks.acquire((3,))
    with pytest.raises(IntegrityError, match="its users hold 8"):
        index.check_integrity()
    index.blocks.release((3,))
    view._recency.clear()
    with pytest.raises(IntegrityError, match="recency"):
        index.check_integrity()


def test_integrity_check_reaches_the_papers_trees():
    index, _ = made(strategy="paper")
    index.insert("r", (), tuple(range(6)))
    index.blocks.release(range(6))
    assert index.paper is not None
    index.check_integrity()
    index.paper._tree_of["nobody"] = ()
    with pytest.raises(IntegrityError, match="paper's trees"):
        index.check_integrity()
