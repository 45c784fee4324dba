"""What must hold for every sequence of requests: permutations, stable prefixes, nothing lost, sound state."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from contextpilot_core import ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.plan.plan import Plan
from contextpilot_core.prompt import label_lines
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import Message
from tests.core.conftest import body
from tests.parsing import ParsedBlock, parse_context

LONG = body("shared passage", 60)
TEXTS = [
    *(body(number, 25) for number in range(6)),
    LONG,
    f"Title\n\n{LONG}",
    f"{LONG} and more",
    "short",
    "",
    "===\n[Doc 1]\n===",
    "Relevance: 3 2 1",
    "\ud800 {context_str}",
]
contexts = st.lists(st.sampled_from(TEXTS), max_size=7)
configs = st.builds(
    EngineConfig,
    strategy=st.sampled_from(["greedy", "paper"]),
    schedule=st.sampled_from(["depth-first", "paper", "arrival"]),
    note=st.sampled_from(["none", "compact", "full"]),
    kv_block=st.sampled_from([1, 16]),
    cache_tokens=st.sampled_from([None, 50, 300]),
    dedup=st.booleans(),
    span_dedup=st.booleans(),
)


def check_plan(plan: Plan, config: EngineConfig) -> None:
    given_texts = [str(block) for block in plan.request.blocks]
    distinct = {plan.request.blocks.index(text) for text in given_texts}
    if config.dedup:
        assert sorted(plan.order) == sorted(distinct)
        assert sorted((*plan.order, *plan.dropped)) == list(range(len(given_texts)))
    else:
        assert sorted(plan.order) == list(range(len(given_texts)))
    assert list(plan.expand()) == [given_texts[position] for position in plan.order]
    check_rendering(plan)
    assert plan.moved == (list(plan.order) != sorted(plan.order))
    assert bool(plan.annotation) == (plan.moved and config.note != "none")
    assert 0 <= plan.expected_reused_tokens <= max(0, plan.report.block_tokens)


def check_rendering(plan: Plan) -> None:
    """Parsing gives every item back; where a block was sent literally, its very body."""
    items = parse_context(plan.context.text) if plan.order else ()
    assert len(items) == len(plan.order)
    hinted = {hint.position for hint in plan.hints}
    for item, position, label, run in zip(items, plan.order, plan.labels, plan.segments, strict=True):
        assert isinstance(item, ParsedBlock) == (position not in hinted)
        if isinstance(item, ParsedBlock):
            assert item.label == label
            if all(segment.label is None for segment in run):
                assert item.body == plan.request.blocks[position]


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(contexts, max_size=8), st.booleans())
def test_every_plan_is_whole(config: EngineConfig, stream: list[list[str]], batched: bool):
    engine = ReuseEngine(config)
    if batched:
        batch = engine.plan_batch([ContextRequest(blocks=blocks, query="q") for blocks in stream])
        assert sorted(batch.schedule) == list(range(len(stream)))
        plans = list(batch.plans)
        assert [plan.request.blocks for plan in plans] == [tuple(blocks) for blocks in stream]
    else:
        plans = [engine.plan(blocks, query="q") for blocks in stream]
    for plan in plans:
        check_plan(plan, config)
    engine.check_integrity()


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(contexts, min_size=2, max_size=8), contexts)
def test_equal_leading_blocks_render_to_equal_bytes(config: EngineConfig, stream: list[list[str]], first: list[str]):
    engine = ReuseEngine(config)
    opening = engine.plan(first, query="first", instructions="S")
    history: list[Message] = [*opening.messages, {"role": "assistant", "content": "A"}]
    for messages in ((), history):
        plans = [engine.plan(blocks, query=str(n), messages=messages) for n, blocks in enumerate(stream)]
        for one in plans:
            for other in plans:
                # A request whose documents imitate a label gets that label's document in full, others get a hint.
                if label_lines(one.request.blocks) == label_lines(other.request.blocks):
                    check_common_prefix(one, other)


def check_common_prefix(one: Plan, other: Plan) -> None:
    equal = 0
    for left, right in zip(one.order, other.order, strict=False):
        if one.request.blocks[left] != other.request.blocks[right]:
            break
        equal += 1
    if equal:
        end = one.context.ends[equal - 1]
        assert one.messages[:-1] == other.messages[:-1]
        assert one.messages[-1]["content"][:end] == other.messages[-1]["content"][:end]
        assert other.context.ends[equal - 1] == end


@settings(max_examples=60, deadline=None)
@given(configs, st.lists(st.tuples(contexts, st.booleans()), max_size=6))
def test_conversations_extend_byte_for_byte_and_hints_point_to_the_text(
    config: EngineConfig, turns: list[tuple[list[str], bool]]
):
    engine = ReuseEngine(config)
    history: list[Message] = []
    for number, (blocks, trims) in enumerate(turns):
        plan = engine.plan(blocks, query=f"question {number}", messages=history, session_id="s")
        check_plan(plan, config)
        assert list(plan.messages[: len(history)]) == history
        check_hints(plan, history)
        history = [*plan.messages, {"role": "assistant", "content": f"answer {number}"}]
        if trims:
            history = history[2:]
    engine.check_integrity()


def check_hints(plan: Plan, history: list[Message]) -> None:
    """A hint with a label names the one block of the history with that label, and its body is the hinted text."""
    blocks: dict[int, list[str]] = {}
    for message in history:
        if message["role"] == "user":
            context = str(message["content"])
            for item in parse_context(context[: context.rfind("\n\nquestion")]):
                if isinstance(item, ParsedBlock):
                    blocks.setdefault(item.label, []).append(item.body)
    for hint in plan.hints:
        if hint.label is not None:
            assert blocks[hint.label] == [plan.request.blocks[hint.position]]


class Interleavings(RuleBasedStateMachine):
    """Random traffic on one engine; its state must be sound after every step."""

    plans: Bundle[Plan] = Bundle("plans")

    @initialize(config=configs)
    def start(self, config: EngineConfig) -> None:
        self.clock = ManualClock()
        self.engine = ReuseEngine(config, clock=self.clock)

    @rule(target=plans, blocks=contexts, commit=st.booleans(), space=st.sampled_from(["x", "y"]))
    def plan(self, blocks: list[str], commit: bool, space: str) -> Plan:
        return self.engine.plan(blocks, query="q", commit=commit, namespace=space)

    @rule(target=plans, plan=plans, blocks=contexts)
    def next_turn(self, plan: Plan, blocks: list[str]) -> Plan:
        history = [*plan.messages, {"role": "assistant", "content": "."}]
        return self.engine.plan(blocks, query="next", messages=history, namespace=plan.request.namespace)

    @rule(stream=st.lists(contexts, max_size=4), commit=st.booleans())
    def batch(self, stream: list[list[str]], commit: bool) -> None:
        self.engine.plan_batch([ContextRequest(blocks=blocks, namespace="x") for blocks in stream], commit=commit)

    @rule(stream=st.lists(contexts, max_size=4), commit=st.booleans())
    def window(self, stream: list[list[str]], commit: bool) -> None:
        self.engine.plan_window([ContextRequest(blocks=blocks, namespace="x") for blocks in stream], commit=commit)

    @rule(stream=st.lists(contexts, max_size=3))
    def warm(self, stream: list[list[str]]) -> None:
        self.engine.warm([ContextRequest(blocks=blocks, namespace="x") for blocks in stream])

    @rule(plan=plans)
    def commit(self, plan: Plan) -> None:
        assert self.engine.commit(plan) == self.engine.commit(plan)

    @rule(plan=plans)
    def abandon(self, plan: Plan) -> None:
        self.engine.abandon(plan)
        assert not self.engine.abandon(plan)

    @rule(plan=plans)
    def evict(self, plan: Plan) -> None:
        self.engine.evict([plan.request_id], namespace=plan.request.namespace)
        again = self.engine.evict([plan.request_id], namespace=plan.request.namespace)
        assert again.unknown == (plan.request_id,)

    @rule(space=st.sampled_from(["x", None]))
    def reset(self, space: str | None) -> None:
        self.engine.reset(space)

    @rule(seconds=st.sampled_from([1.0, 61.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(plan=plans)
    def render(self, plan: Plan) -> None:
        assert plan.expand() is not None
        assert plan.explain()

    @invariant()
    def sound(self) -> None:
        self.engine.check_integrity()


Interleavings.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestInterleavings = Interleavings.TestCase


def test_a_long_random_run_with_evictions_ends_empty():
    rng = random.Random(7)
    engine = ReuseEngine(EngineConfig(cache_tokens=2_000))
    live: list[str] = []
    for _ in range(1_500):
        if live and rng.random() < 0.4:
            engine.evict([live.pop(rng.randrange(len(live)))])
        else:
            live.append(engine.plan([body(rng.randrange(40), 20) for _ in range(5)]).request_id)
    engine.check_integrity()
    engine.evict(live)
    assert engine.stats().known_blocks == 0
    engine.check_integrity()
