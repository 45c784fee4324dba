"""The engine in front of a serving engine that tells what it caches; a token of this one is a character."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import PromptTokens, Served
from tests.core.kv_engine import Engine

KV_BLOCK = 8
TEXTS = [f"{name} " * 20 for name in ("oak", "fir", "elm", "ash", "yew", "box")]


class Stack:
    """A reuse engine, a serving engine, and the events between them."""

    def __init__(self, follow=True, **config):
        self.serving = Engine(size=KV_BLOCK)
        self.mirror = KVMirror(block_size=KV_BLOCK)
        self.clock = ManualClock()
        self.engine = ReuseEngine(
            EngineConfig(kv_block=KV_BLOCK, note="none", **config),
            token_counter=len,
            clock=self.clock,
            mirror=self.mirror if follow else None,
        )

    def publish(self):
        self.mirror.apply(self.serving.take())

    def ask(self, numbers, *, tell=True, **request):
        """Send one request: (what was observed, the plan)."""
        plan = self.engine.plan([TEXTS[number] for number in numbers], query="Which tree?", **request)
        texts = [f"<{message['role']}>{message['content']}" for message in plan.messages]
        prompt = "".join(texts)
        start = len(prompt) - len(texts[-1]) + len("<user>") if plan.context.text else len(prompt)
        tokens = PromptTokens(
            token_ids=[ord(character) for character in prompt],
            start=start,
            ends=[start + end for end in plan.context.ends],
        )
        cached = self.serving.hit(tokens.token_ids) * KV_BLOCK
        self.serving.admit(tokens.token_ids)
        if tell:
            self.publish()
        served = Served(prompt_tokens=len(prompt), cached_tokens=cached, tokens=tokens)
        return self.engine.observe(plan, served), plan


def text_of(prefix):
    return "".join(map(chr, prefix))


def drop(stack, wanted, tell=True):
    """Evict the KV blocks whose prefix is ``wanted`` (a function of the text up to their end)."""
    serving = stack.serving
    while True:
        there = sorted(serving.copies.elements(), key=repr)
        place = next((place for place, (prefix, _, _) in enumerate(there) if wanted(text_of(prefix))), None)
        if place is None:
            break
        serving.evict(place)
    if tell:
        stack.publish()
    else:
        serving.take()


@pytest.fixture
def stack():
    return Stack()


def test_predictions_are_what_the_engine_reports(stack):
    for numbers in ((0, 1, 2), (2, 1, 0, 3), (4, 5), (5, 4, 0), (3, 0, 1), (0, 1, 2)):
        observation, _ = stack.ask(numbers, instructions="Answer briefly.")
        assert observation.source == "events"
        assert observation.predicted == observation.reported
    stats = stack.engine.stats()
    assert stats.source == "events"
    assert stats.compared == 6
    assert stats.predicted_tokens == stats.reported_tokens > 0
    assert stats.drift == 0


def test_an_evicted_head_is_not_chased(stack):
    estimate = Stack(follow=False)
    for each in (stack, estimate):
        each.ask((0, 1, 2))
        each.ask((3, 4))
        each.clock.advance(2)
        drop(each, lambda text: TEXTS[0] in text or TEXTS[0].startswith(text[-3:]))
        each.ask((0, 1, 2, 3, 4))
    assert stack.engine.stats().source == "events"
    observed = [each.engine.stats().reported_tokens for each in (stack, estimate)]
    assert observed[0] > observed[1]


def test_a_head_that_the_estimate_forgot_is_found():
    small = {"cache_tokens": 2 * len(TEXTS[0])}
    follows, estimates = Stack(**small), Stack(follow=False, **small)
    for each in (follows, estimates):
        each.ask((0, 1))
        each.ask((2, 3))
        each.clock.advance(2)
        each.ask((4, 5, 1, 0))
    gain = follows.engine.stats().reported_tokens - estimates.engine.stats().reported_tokens
    assert gain > len(TEXTS[0] + TEXTS[1])


def test_what_was_evicted_comes_back_in_the_order_that_others_take():
    stack = Stack(cache_tokens=None)
    _, first = stack.ask((0, 1, 2))
    stack.clock.advance(2)
    drop(stack, lambda text: True)
    for numbers in ((3, 2, 1, 0), (2, 4, 0, 1)):
        observation, plan = stack.ask(numbers)
        assert [numbers[position] for position in plan.order[:3]] == [0, 1, 2]
    assert observation.predicted == observation.reported > 3 * len(TEXTS[0])


def test_turns_of_a_conversation_follow_their_history(stack):
    _, first = stack.ask((0, 1), instructions="Answer briefly.")
    history = [*first.messages, {"role": "assistant", "content": "The oak."}]
    observation, second = stack.ask((2, 1), messages=history)
    assert second.hints
    assert observation.predicted == observation.reported > 2 * len(TEXTS[0])
    stack.clock.advance(2)
    observation, third = stack.ask((3, 2, 4), messages=[*second.messages, {"role": "assistant", "content": "Elm."}])
    assert observation.predicted == observation.reported
    assert third.expected_reused_tokens == 0


def test_a_view_that_stays_wrong_is_given_up_until_it_is_right_again(stack, caplog):
    caplog.set_level(logging.INFO, logger="contextpilot_core")
    stack.ask((0, 1, 2))
    for number in range(40):
        if stack.engine.stats().source == "estimate":
            break
        drop(stack, lambda text: True, tell=False)  # these removals never arrive
        stack.ask((number % 6, (number + 1) % 6, 2))
    assert stack.engine.stats().source == "estimate"
    assert "planning on the estimate" in caplog.text
    stack.mirror.clear()
    stack.serving.reset()
    stack.mirror.apply(stack.serving.take())
    for number in range(25):
        stack.ask((number % 6, (number + 1) % 6))
    assert stack.engine.stats().source == "events"
    assert "planning on the events" in caplog.text
    assert not any(text[:10] in caplog.text for text in TEXTS)


def test_a_suspended_mirror_leaves_the_estimate(stack):
    stack.ask((0, 1, 2))
    stack.mirror.suspend("a gap")
    observation, _ = stack.ask((0, 1, 2))
    assert observation.source == stack.engine.stats().source == "estimate"
    assert observation.predicted is not None
    stack.mirror.resume()
    assert stack.ask((0, 1, 2))[0].source == "events"


def test_unknown_is_not_zero_and_a_silent_server_is_named(stack, caplog):
    for _ in range(5):
        plan = stack.engine.plan(TEXTS[:2])
        assert stack.engine.observe(plan, Served(prompt_tokens=100)).reported is None
    stats = stack.engine.stats()
    assert (stats.compared, stats.unreported, stats.reported_tokens) == (0, 5, 0)
    assert stats.drift is None
    assert caplog.text.count("--enable-prompt-tokens-details") == 1
    plan = stack.engine.plan(TEXTS[:2])
    assert stack.engine.observe(plan, Served(prompt_tokens=100, cached_tokens=0)).reported == 0
    assert stack.engine.stats().compared == 1


def test_an_estimate_that_expects_too_much_says_what_to_change(caplog):
    stack = Stack(follow=False)
    for _ in range(12):
        drop(stack, lambda text: True)
        stack.ask((0, 1, 2))
    assert "cache_tokens=40000" in caplog.text


def test_a_request_id_that_is_used_again_is_not_mixed_up(stack):
    first = stack.engine.plan(TEXTS[:2], request_id="x", commit=False)
    stack.clock.advance(EngineConfig().in_flight_seconds + 1)
    stack.engine.plan([TEXTS[2]], request_id="x")
    tokens = PromptTokens(token_ids=range(100), start=0, ends=[40, 80])
    stack.engine.observe(first, Served(prompt_tokens=100, cached_tokens=0, tokens=tokens))
    stack.engine.check_integrity()


def test_a_prediction_needs_a_mirror_that_was_live_at_the_plan(stack):
    stack.ask((0, 1, 2))
    stack.mirror.suspend("the connection broke")
    plan = stack.engine.plan(TEXTS[:3])
    stack.mirror.resume()
    tokens = PromptTokens(token_ids=[1, 2, 3])
    observation = stack.engine.observe(plan, Served(prompt_tokens=600, cached_tokens=0, tokens=tokens))
    assert observation.source == "estimate"


def test_plans_that_are_gone_can_be_observed(stack):
    plan = stack.engine.plan(TEXTS[:2], commit=False)
    stack.engine.abandon(plan)
    tokens = PromptTokens(token_ids=[1, 2, 3], start=0, ends=[1, 2])
    observation = stack.engine.observe(plan, Served(prompt_tokens=3, cached_tokens=0, tokens=tokens))
    assert observation.predicted == 0
    stack.engine.check_integrity()


def test_the_mirror_must_be_one():
    with pytest.raises(ConfigError, match="KVMirror"):
        ReuseEngine(mirror="tcp://localhost:5557")


traffic = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("evict"), st.integers(0, 500)),
        st.tuples(st.just("reset"), st.none()),
        st.tuples(st.just("wait"), st.none()),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(traffic)
def test_whatever_the_engine_evicts_predictions_hold_and_the_state_is_sound(steps):
    stack = Stack()
    for step, value in steps:
        if step == "ask":
            observation, plan = stack.ask(value, instructions="Answer briefly.")
            assert observation.predicted == observation.reported
            assert sorted(plan.order) == list(range(len(value)))
        elif step == "evict":
            stack.serving.evict(value)
            stack.mirror.apply(stack.serving.take())
        elif step == "reset":
            stack.serving.reset()
            stack.mirror.apply(stack.serving.take())
        else:
            stack.clock.advance(2)
        stack.engine.check_integrity()
        stack.mirror.check_integrity()


def test_one_tenants_wrong_reports_leave_the_events_to_the_others(stack):
    def ask(space):
        return stack.ask((0, 1, 2), namespace=space)

    ask("right")
    _, plan = ask("wrong")
    lie = Served(prompt_tokens=900, cached_tokens=0, tokens=PromptTokens(token_ids=range(900)))
    alone = stack.engine.stats("right")
    for _ in range(30):
        stack.mirror.apply([])
        stack.engine.observe(plan, Served(prompt_tokens=10_000, cached_tokens=10_000, tokens=lie.tokens))
    assert (stack.engine.stats("wrong").source, stack.engine.stats("right")) == ("estimate", alone)
    assert alone.source == "events"


def test_figures_of_one_namespace_hold_nothing_of_the_others(stack):
    for space in "aab":
        stack.ask((0, 1), namespace=space)
    whole, parts = stack.engine.stats(), [stack.engine.stats(space) for space in "ab"]
    assert [part.planned for part in parts] == [2, 1]
    assert stack.engine.stats("nobody").planned == 0
    for name in set(vars(whole)) - {"drift", "source"}:
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts), name
    assert stack.engine.plan(TEXTS[:1], namespace="b").request_id == "r2"
    stack.engine.reset("a")
    assert stack.engine.stats("a").planned == 0
    assert stack.engine.stats().planned == 4
