"""`expected_reuse` says what a plan would say, and leaves no trace."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ContextRequest, EngineConfig, RequestTypeError, ReuseEngine
from tests.core.conftest import body

TEXTS = [body(number, 25) for number in range(5)]
contexts = st.lists(st.sampled_from(TEXTS), max_size=5)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(contexts, st.booleans(), st.booleans()), max_size=8),
    st.builds(
        EngineConfig,
        strategy=st.sampled_from(["greedy", "paper", "none"]),
        cache_tokens=st.sampled_from([None, 60, 300]),
        kv_block=st.sampled_from([1, 16]),
        max_requests=st.sampled_from([2, 100]),
        budget=st.just(3),
        pinned=st.just(1),
    ),
)
def test_it_says_what_the_next_plan_says_and_changes_nothing(stream, config):
    asked, silent = ReuseEngine(config), ReuseEngine(config)
    messages: list[dict[str, object]] = []
    for blocks, commit, talks in stream:
        history = messages if talks else []
        request = ContextRequest(blocks=blocks, query="q", messages=history)
        before = asked.stats()
        expected = asked.expected_reuse(request)
        asked.expected_reuse(ContextRequest(blocks=[*blocks, "new text"], request_id="r1"))
        assert asked.stats() == before
        plan = asked.plan(blocks, query="q", messages=history, commit=commit)
        other = silent.plan(blocks, query="q", messages=history, commit=commit)
        assert plan.expected_reused_tokens == expected
        assert (plan.request_id, plan.messages) == (other.request_id, other.messages)
        messages = [*plan.messages, {"role": "assistant", "content": "yes"}]
    assert asked.stats() == silent.stats()
    asked.check_integrity()


def test_plans_in_flight_count_as_cached():
    engine = ReuseEngine()
    request = ContextRequest(blocks=[body("tea"), body("milk")])
    assert engine.expected_reuse(request) == 0
    plan = engine.plan(request.blocks, commit=False)
    assert engine.expected_reuse(request) > 0
    engine.abandon(plan)
    assert engine.expected_reuse(request) == 0


def test_an_unknown_namespace_stays_unknown():
    engine = ReuseEngine()
    assert engine.expected_reuse(ContextRequest(blocks=["text"], namespace="new")) == 0
    assert engine.stats().namespaces == 0


def test_a_bad_request_is_refused():
    with pytest.raises(RequestTypeError, match="must be a ContextRequest"):
        ReuseEngine().expected_reuse(["text"])  # type: ignore[arg-type]
