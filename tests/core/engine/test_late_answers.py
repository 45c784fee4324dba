"""Answers that come late, twice, or after their plan is gone, told of in any order: nothing raises, all stays sound."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from contextpilot_core import ContextRequest, DuplicateRequestError, EngineConfig, ReuseEngine
from contextpilot_core.mirror.events import AllBlocksCleared, BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.plan.plan import Plan
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import PromptTokens, Served

SIZE = 16
TEXTS = [f"{number}" * (80 * (1 + number % 4)) for number in range(8)]


def tokens_of(plan, start=0, ends=None):
    ids = [ord(character) for character in plan.text[::4]]
    return PromptTokens(
        token_ids=ids, start=start, ends=[end // 4 for end in plan.context.ends] if ends is None else ends
    )


def served(plan, **tokens):
    told = tokens_of(plan, **tokens)
    return Served(prompt_tokens=len(told.token_ids), cached_tokens=0, tokens=told)


def stored(plan, number):
    ids = tokens_of(plan).token_ids
    blocks = len(ids) // SIZE
    names = tuple(number * 1_000 + place for place in range(blocks))
    return BlockStored(
        block_hashes=names, parent_block_hash=None, token_ids=tuple(ids[: blocks * SIZE]), block_size=SIZE
    )


def test_an_answer_that_comes_after_its_blocks_left_the_estimate():
    clock, mirror = ManualClock(), KVMirror(SIZE)
    engine = ReuseEngine(EngineConfig(cache_tokens=100), clock=clock, mirror=mirror)
    late = engine.plan(["a" * 320])
    clock.advance(61)
    for number in range(3):
        engine.plan([str(number) * 320])
    mirror.apply([stored(late, 1)])
    engine.observe(late, served(late))
    engine.check_integrity()
    assert engine.plan(["b" * 400, "a" * 320]).order == (1, 0)  # what it told is planned on
    engine.observe(late, served(late))
    engine.check_integrity()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("seconds", [0, 61])
@pytest.mark.parametrize("bounds", [{"cache_tokens": 100}, {"max_requests": 1}])
def test_a_plan_whose_id_another_one_has_by_now(bounds, seconds, first):
    clock = ManualClock()
    engine = ReuseEngine(EngineConfig(**bounds), clock=clock, mirror=KVMirror(SIZE))
    plans = [engine.plan(["a" * 320, "b" * 100], request_id="x")]
    for number in range(3):
        engine.plan([str(number) * 320])
    clock.advance(seconds)
    plans.append(engine.plan(["c" * 320], request_id="x"))
    for plan in (plans[first], plans[1 - first], plans[0], plans[1]):
        engine.observe(plan, served(plan))
        engine.check_integrity()
    assert not engine.abandon(plans[0])
    assert engine.evict(["x"]).evicted == ("x",)
    engine.check_integrity()


class Answers(RuleBasedStateMachine):
    """Random traffic of few names in front of a small cache, whose events and reports come when they like."""

    plans: Bundle[Plan] = Bundle("plans")
    names = st.sampled_from([None, "x", "y", "r3", "r5"])
    contexts = st.lists(st.sampled_from(TEXTS), max_size=5)

    @initialize(
        tokens=st.sampled_from([100, 300, None]),
        requests=st.sampled_from([1, 2, 5, 1_000]),
        strategy=st.sampled_from(["greedy", "paper"]),
    )
    def start(self, tokens, requests, strategy):
        self.clock, self.mirror, self.told = ManualClock(), KVMirror(SIZE), 0
        config = EngineConfig(cache_tokens=tokens, max_requests=requests, strategy=strategy)
        self.engine = ReuseEngine(config, clock=self.clock, mirror=self.mirror)

    @rule(target=plans, blocks=contexts, name=names, commit=st.booleans())
    def plan(self, blocks, name, commit):
        try:
            return self.engine.plan(blocks, query="q", request_id=name, commit=commit)
        except DuplicateRequestError:
            return self.engine.plan(blocks, query="q", commit=commit)

    @rule(target=plans, plan=plans, blocks=contexts)
    def next_turn(self, plan, blocks):
        return self.engine.plan(blocks, query="q", messages=[*plan.messages, {"role": "assistant", "content": "."}])

    @rule(blocks=contexts, name=names)
    def plan_and_forget(self, blocks, name):
        self.plan(blocks, name, True)

    @rule(blocks=contexts, name=names)
    def window(self, blocks, name):
        requests = [ContextRequest(blocks=blocks, request_id=name), ContextRequest(blocks=blocks[::-1])]
        try:
            self.engine.plan_window(requests, commit=False)
        except DuplicateRequestError:
            pass

    @rule(plan=plans, start=st.integers(0, 99) | st.none(), ends=st.lists(st.integers(0, 99) | st.none(), max_size=6))
    def answer(self, plan, start, ends):
        size = len(tokens_of(plan).token_ids)
        inside = [end if end is None else min(end, size) for end in (start, *ends)]
        self.engine.observe(plan, served(plan, start=inside[0], ends=inside[1:]))

    @rule(plan=plans)
    def event(self, plan):
        self.told += 1
        self.mirror.apply([stored(plan, self.told)])

    @rule()
    def cleared(self):
        self.mirror.apply([AllBlocksCleared()])

    @rule(plan=plans)
    def commit(self, plan):
        self.engine.commit(plan)

    @rule(plan=plans)
    def abandon(self, plan):
        self.engine.abandon(plan)

    @rule(plan=plans)
    def evict(self, plan):
        self.engine.evict([plan.request_id])

    @rule(space=st.sampled_from([None, "default"]))
    def reset(self, space):
        self.engine.reset(space)

    @rule(seconds=st.sampled_from([0.5, 2.0, 61.0, 4_000.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def sound(self):
        self.engine.check_integrity()


Answers.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestAnswers = Answers.TestCase
