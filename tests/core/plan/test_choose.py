"""Decisions by hand: what is sent, in which order, with which note and why; and what holds for all of them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ContextRequest, EngineConfig
from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.clustering.values import Lead
from contextpilot_core.plan.choose import choose, keep
from contextpilot_core.plan.lookup import ContextIndex, let_go, look_up
from contextpilot_core.plan.request import Job, prepare
from contextpilot_core.prompt.memory import Conversations
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.prompt.section import render_bodies
from contextpilot_core.testing import ManualClock
from contextpilot_core.tokens import Weights


def count(text: str) -> int:
    """A token a character, so that the figures can be followed by hand."""
    return len(text)


class Space:
    """One namespace: what was sent before is cached, and what was rendered is known."""

    def __init__(self, **fields: Any) -> None:
        self.config, blocks = (
            EngineConfig(**{"kv_block": 1, "cache_tokens": None, "note": "compact", **fields}),
            BlockTable(),
        )
        view = CacheView(blocks, capacity=self.config.cache_tokens, max_requests=100)
        self.index = ContextIndex(self.config, blocks, view)
        self.known = Conversations(limit=10, seconds=100, clock=ManualClock())
        self.sent = 0

    def look_up(self, *blocks: str, **fields: Any) -> Job:
        job = prepare(ContextRequest(blocks=blocks, **fields), self.config, Weights(count))
        look_up(job, self.index, self.known, self.config, count)
        return job

    def send(self, *blocks: str, **fields: Any) -> None:
        job = self.look_up(*blocks, **fields)
        self.sent += 1
        self.index.insert(f"r{self.sent}", job.head, job.leading(job.positions))
        let_go(job, self.index)

    def choose(self, *blocks: str, lead: Sequence[str] | None = None, promise: int = 0, **fields: Any) -> Job:
        job = self.look_up(*blocks, **fields)
        ids = {job.bodies[position]: block for position, block in job.ids.items()}
        found = None if lead is None else Lead(tuple([ids[text] for text in lead]), promise)
        choose(job, self.index, self.config, count, found)
        let_go(job, self.index)
        return job

    def keep(self, *blocks: str, order: tuple[int, ...]) -> Job:
        job = self.look_up(*blocks)
        keep(job, self.index, self.config, count, order)
        let_go(job, self.index)
        return job


A, B, C, D = ("a" * 40, "b" * 50, "c" * 60, "d" * 30)


def figures(job: Job) -> tuple[int, ...]:
    return job.cached_blocks, job.prefix_tokens, job.expected_tokens, job.block_tokens, job.note_tokens


# --- the retrieval order stays


def test_nothing_is_cached():
    job = Space().choose(A, B)
    assert (job.order, job.moved, job.note) == ((0, 1), False, "")
    assert job.reason == "kept the retrieval order: nothing that is cached fits in front"
    assert figures(job) == (0, 0, 0, 90, 0)
    assert job.context == (0, 1)


def test_the_retrieval_order_follows_the_cache_already():
    space = Space()
    space.send(A, B, C)
    job = space.choose(A, B, D)
    assert (job.order, job.reason) == (
        (0, 1, 2),
        "kept the retrieval order: the retrieval order already follows the cache",
    )
    assert figures(job) == (2, 90, 90, 120, 0)


def test_moving_would_save_no_more_than_a_kv_block():
    space = Space(kv_block=60)
    space.send(C)
    job = space.choose(A, C)
    assert (job.order, job.reason) == (
        (0, 1),
        "kept the retrieval order: 60 tokens from the cache instead of 0, a KV block is 60",
    )


def test_moving_would_save_no_more_than_the_note_costs():
    space = Space(kv_block=20)
    space.send(D)
    job = space.choose(A, D)
    assert job.order == (0, 1)
    # 30 tokens are one KV block of 20, and that is no more than a KV block
    assert job.reason.endswith("20 tokens from the cache instead of 0, a KV block is 20")
    space = Space(kv_block=1)
    space.send("e" * 14)
    job = space.choose(A, "e" * 14)
    assert job.reason == (
        "kept the retrieval order: 14 tokens from the cache instead of 0, a KV block is 1, the note costs 14"
    )
    assert job.note == "" and job.note_tokens == 0
    space.send("f" * 16)
    assert space.choose(A, "f" * 16).order == (1, 0)


def test_a_note_that_does_not_fit_its_limit_moves_nothing():
    space = Space()
    space.send(C)
    space.config = EngineConfig(kv_block=1, note="compact")
    job = space.look_up(A, C)
    long: list[str] = []
    choose(job, space.index, space.config, lambda text: long.append(text) or 100)
    assert job.order == (0, 1)
    assert job.reason.endswith("a KV block is 1")
    assert long[-1] == "Relevance: 2"


# --- blocks are moved


def test_moved_with_a_note():
    space = Space()
    space.send(C, B)
    job = space.choose(A, B, C)
    assert (job.order, job.moved, job.note) == ((2, 1, 0), True, "Relevance: 3 2 1")
    assert job.reason == "moved blocks: 110 tokens from the cache instead of 0, a KV block is 1, the note costs 16"
    assert figures(job) == (2, 110, 110, 150, 16)
    assert job.context == tuple(job.ids[position] for position in (2, 1, 0))


def test_moved_without_a_note_where_none_is_wanted():
    space = Space(note="none", kv_block=50)
    space.send(C, B)
    job = space.choose(A, B, C)
    assert (job.order, job.note, job.note_tokens) == ((2, 1, 0), "", 0)
    assert job.expected_tokens == 100  # in whole KV blocks
    assert job.prefix_tokens == 110


def test_what_the_retrieval_order_finds_counts_against_moving():
    space = Space(note="none")
    space.send(A)
    space.send(B)
    space.send(D, C)
    assert "50 tokens from the cache instead of 40" in space.choose(A, B).reason
    assert space.choose(B, A).order == (0, 1)
    assert space.choose(B, C, D).order == (2, 1, 0)
    space = Space()
    space.send(A)
    space.send(B)
    job = space.choose(A, B)  # 10 more, and the note costs 14
    assert (job.order, job.expected_tokens) == ((0, 1), 40)


def test_the_full_note_names_every_label():
    space = Space(note="full")
    space.send(C, B)
    job = space.choose(A, B, C, D)
    assert job.order == (2, 1, 0, 3)
    assert job.note == "Read the documents in this order of relevance: [Doc 3] > [Doc 2] > [Doc 1] > [Doc 4]"
    assert job.note_tokens == len(job.note) == 84
    space = Space(note="full")
    space.send(C)
    assert space.choose(A, B, C).order == (0, 1, 2)


# --- proposals of a batch


def test_a_proposal_with_a_promise_is_followed_though_nothing_is_cached():
    space = Space(note="none")
    job = space.choose(A, B, C, lead=(C,), promise=60)
    assert (job.order, job.expected_tokens) == ((2, 0, 1), 0)
    assert job.reason == "moved blocks: 60 tokens from the cache instead of 0, a KV block is 1"
    assert space.choose(A, B, C, lead=(C,)).order == (0, 1, 2)


def test_a_proposal_gives_way_to_what_is_cached_and_better():
    space = Space(note="none")
    space.send(B, A)
    assert space.choose(A, B, C, lead=(C,), promise=89).order == (1, 0, 2)
    assert space.choose(A, B, C, lead=(C,), promise=90).order == (2, 0, 1)
    # what is cached of the proposal counts, too
    space.send(C, A)
    assert space.choose(A, B, C, lead=(C, A)).order == (2, 0, 1)


def test_a_proposal_that_is_not_cached_and_promises_nothing_is_worth_nothing():
    space = Space(note="none")
    space.send(B)
    assert space.choose(A, B, C, lead=(C,)).order == (1, 0, 2)


def test_a_proposal_is_weighed_behind_its_head():
    space, history = Space(note="none"), [{"role": "user", "content": "hi"}]
    space.send(B, A, messages=history)
    space.send(C, A, messages=history)
    assert space.choose(A, B, C, lead=(C, A), messages=history).order == (2, 0, 1)
    # of the other proposal one block is cached: 50 tokens, and not 110
    assert space.choose(A, B, C, lead=(B, C), messages=history).order == (2, 0, 1)


def test_what_stands_twice_takes_its_places_in_turn():
    space = Space(note="none", dedup=False)
    space.send(B, A, B)
    job = space.choose(A, B, B)
    assert (job.order, job.cached_blocks, job.block_tokens) == ((1, 0, 2), 3, 140)


# --- behind a conversation


def talk(space: Space, *texts: str) -> list[dict[str, Any]]:
    content, record = render_bodies(texts, space.config, count)
    space.known.record(body_digest(content), record, "earlier")
    return [{"role": "user", "content": content}]


def test_behind_a_hint_nothing_is_cached():
    space = Space(note="none")
    history = talk(space, A)
    space.send(B, C, messages=history)
    job = space.choose(B, A, C, messages=history)
    assert job.hints == {1: 1}
    assert (job.order, job.cached_blocks) == ((0, 2, 1), 2)
    kept = space.choose(D, A, C, messages=history)
    assert (kept.order, kept.cached_blocks, kept.context) == ((0, 1, 2), 0, (kept.ids[0],))


def test_the_head_is_part_of_the_prefix_and_not_of_the_context():
    space = Space()
    history = talk(space, A)
    space.send(B, messages=history)
    job = space.choose(B, messages=history)
    head = len(history[0]["content"])
    assert figures(job) == (1, head + 50, 50, 50, 0)
    space.send(messages=[{"role": "user", "content": "another"}])
    other = space.choose(B, messages=[{"role": "user", "content": "another"}, *history])
    assert figures(other) == (0, len("another"), 0, 50, 0)  # of the head, the first message is cached


def test_a_note_names_hinted_blocks_too_unless_they_have_no_label():
    space = Space()
    history = talk(space, A)
    history.append({"role": "user", "content": B * 2})  # somebody else's
    space.send(C, messages=history)
    job = space.choose(B * 2, A, B, C, messages=history)
    assert job.hints == {0: None, 1: 1}
    assert (job.order, job.note) == ((3, 0, 1, 2), "Relevance: 1 3 2")
    full = Space(note="full")
    history = talk(full, A)
    full.send(C * 3, messages=history)
    job = full.choose(A, B, C * 3, messages=history)
    assert job.note.endswith(": [Doc 1] > [Doc 3] > [Doc 2]")


def test_text_that_a_span_hint_replaces_is_not_counted_as_cached():
    words = " ".join(f"word{number}" for number in range(20))
    space = Space(note="none")
    space.send(words, f"{words} end")
    job = space.choose(words, f"{words} end")
    assert job.cached_blocks == 2
    assert job.expected_tokens == len(words) + len(" end")
    assert job.prefix_tokens == len(words) + len(f"{words} end")
    batched = space.choose(words, f"{words} end", lead=())  # for a batch, bodies count as a whole
    assert batched.expected_tokens == batched.prefix_tokens
    plain = Space(note="none", span_dedup=False)
    plain.send(words, f"{words} end")
    assert plain.choose(words, f"{words} end").expected_tokens == job.prefix_tokens


# --- selection


def test_selection_keeps_the_pinned_and_fills_up_by_rank():
    space = Space(budget=3, pinned=1, note="none")
    assert space.choose(A, B, C, D).order == (0, 1, 2)
    space.send(D, A)
    job = space.choose(A, B, C, D)
    assert (job.order, job.moved) == ((3, 0, 1), True)
    assert job.block_tokens == 120
    space.send(D, C, A)
    assert space.choose(A, B, C, D).order == (3, 2, 0)
    assert space.choose(A, B).order == (0, 1)


def test_other_documents_by_rank_need_no_note():
    space = Space(budget=2, pinned=1)
    space.send(A, C)
    job = space.choose(A, B, C)
    assert (job.order, job.moved, job.note) == ((0, 2), False, "")
    assert job.reason == "selected what is cached: 100 tokens from the cache instead of 40, a KV block is 1"


# --- orders from elsewhere


def test_an_order_is_kept_with_its_note():
    space = Space()
    job = space.keep(A, B, C, order=(2, 0, 1))
    assert (job.order, job.moved, job.note, job.note_tokens) == ((2, 0, 1), True, "Relevance: 2 3 1", 16)
    assert job.reason == "kept the order in which it was sent before"
    plain = space.keep(A, B, C, order=(0, 2))
    assert (plain.order, plain.moved, plain.note) == ((0, 2), False, "")
    assert plain.block_tokens == 100
    silent = Space(note="none").keep(A, B, order=(1, 0))
    assert (silent.moved, silent.note, silent.note_tokens) == (True, "", 0)


def test_a_kept_order_says_what_is_cached_of_it():
    space = Space(kv_block=16)
    space.send(C, A)
    job = space.keep(A, B, C, order=(2, 0, 1))
    assert figures(job) == (2, 100, 96, 150, 16)


# --- any request


texts = st.lists(st.sampled_from([A, B, C, D, "e", "f" * 90]), max_size=5, unique=True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(texts, max_size=6),
    texts,
    st.sampled_from([1, 16, 50]),
    st.sampled_from(["none", "compact", "full"]),
    st.booleans(),
    st.data(),
)
def test_a_decision_pays_and_changes_nothing(
    sent: list[list[str]], asked: list[str], kv_block: int, note: str, selects: bool, data: st.DataObject
):
    selection: dict[str, Any] = {"budget": 3, "pinned": 1} if selects else {}
    space = Space(kv_block=kv_block, note=note, **selection)
    for each in sent:
        space.send(*each)
    lead, promise = None, 0
    if data.draw(st.booleans()):
        lead = data.draw(st.lists(st.sampled_from(asked), unique=True)) if asked else []
        lead, promise = lead[:1], data.draw(st.integers(0, 200))
    before, blocks = space.index.view.state(), len(space.index.blocks)
    job = space.choose(*asked, lead=lead, promise=promise)
    assert (space.index.view.state(), len(space.index.blocks)) == (before, blocks)
    size = min(len(asked), 3) if selects else len(asked)
    assert len(set(job.order)) == len(job.order) == size
    assert job.moved == (list(job.order) != sorted(job.order))
    assert (bool(job.note), job.note_tokens) == (job.moved and note != "none", count(job.note))
    assert not selects or 0 in job.order or not asked

    def cached(order: Sequence[int]) -> int:
        bodies = [asked[position] for position in order]
        fitting = [n for each in sent for n in range(len(each) + 1) if each[:n] == bodies[:n]]
        return sum(map(count, bodies[: max(fitting, default=0)])) // kv_block * kv_block

    assert job.expected_tokens == cached(job.order)
    plain = cached(range(size))
    if list(job.order) != list(range(size)):
        assert max(job.expected_tokens, promise) - job.note_tokens > max(plain, kv_block)
    elif lead is None and not selects and note == "none":
        heads = [each[:n] for each in sent for n in range(len(each) + 1) if set(each[:n]) <= set(asked)]
        assert all(cached([*map(asked.index, head)]) <= max(plain, kv_block) for head in heads)
