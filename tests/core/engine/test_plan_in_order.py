"""`plan` with an order: a conversation that moves to another engine is rendered as it was, whatever is cached there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ContextRequest, EngineConfig, RequestError, RequestTypeError, ReuseEngine
from tests.core.conftest import body

LONG = body("shared passage", 60)
TEXTS = [*(body(number, 25) for number in range(5)), LONG, f"Title\n\n{LONG}"]
contexts = st.lists(st.sampled_from(TEXTS), max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(contexts, max_size=4),
    st.lists(contexts, max_size=4),
    st.lists(contexts, max_size=4),
    st.builds(
        EngineConfig,
        note=st.sampled_from(["none", "compact", "full"]),
        kv_block=st.sampled_from([1, 16]),
        dedup=st.booleans(),
        budget=st.just(4),
        pinned=st.just(1),
    )
    | st.builds(EngineConfig, strategy=st.sampled_from(["greedy", "paper"]), kv_block=st.just(1)),
)
def test_a_conversation_keeps_its_bytes(traffic_there, traffic_here, turns, config):
    there, here = ReuseEngine(config), ReuseEngine(config)
    for engine, traffic in ((there, traffic_there), (here, traffic_here)):
        for blocks in traffic:
            engine.plan(blocks)
    plans, messages = [], []
    for blocks in turns:
        plans.append(there.plan(blocks, query="q", messages=messages))
        messages = [*plans[-1].messages, {"role": "assistant", "content": "yes"}]
    messages = []
    for plan in plans:
        request = ContextRequest(blocks=plan.request.blocks, query="q", messages=messages)
        again = here.plan(**vars(request), order=plan.order)
        assert again.messages == plan.messages
        assert (again.order, again.hints, again.labels, again.moved) == (
            plan.order,
            plan.hints,
            plan.labels,
            plan.moved,
        )
        messages = [*again.messages, {"role": "assistant", "content": "yes"}]
    assert here.plan(TEXTS, messages=messages).hints == there.plan(TEXTS, messages=messages).hints
    here.check_integrity()


@pytest.mark.parametrize("order", [(0, 0), (2,), (1, -1), (), (1,), (0, 2)])
def test_an_order_names_every_block_once(order):
    engine = ReuseEngine()
    with pytest.raises(RequestError, match=r"positions of distinct blocks, each once, and at least 2 of \(0, 1\)"):
        engine.plan(["a", "b", "a"], order=order)
    assert engine.stats().planned == 0


@pytest.mark.parametrize("order", [[[0]], [0.0], ["0"], [True], "0", 0, {0: 1}])
def test_an_order_holds_whole_numbers(order):
    with pytest.raises(RequestTypeError, match="order"):
        ReuseEngine().plan(["a"], order=order)


def test_selection_may_leave_blocks_out_but_not_more():
    engine = ReuseEngine(EngineConfig(budget=2, pinned=1))
    assert engine.plan(["a", "b", "c"], order=(2, 0)).unselected == (1,)
    with pytest.raises(RequestError, match="at least 2"):
        engine.plan(["a", "b", "c"], order=(2,))


def test_without_blocks_there_is_an_order_of_none():
    assert ReuseEngine().plan([], query="q", order=()).order == ()


def test_it_may_be_in_flight():
    engine = ReuseEngine()
    request = ContextRequest(blocks=[body("tea"), body("milk")])
    plan = engine.plan(**vars(request), order=[1, 0], commit=False)
    assert (plan.order, plan.moved, engine.stats().in_flight) == ((1, 0), True, 1)
    assert engine.expected_reuse(request) > 0
    assert engine.abandon(plan)
    assert engine.expected_reuse(request) == 0
