"""The simulated cache of a serving engine: by hand, and against a plain one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.replay.simulated_cache import SimulatedCache
from tests.core.plain_cache import PlainCache

WEIGHTS = {"a": 10, "b": 20, "c": 30, "\ud800": 5, "none": 0}


def test_a_prompt_finds_what_an_earlier_one_began_with():
    cache = SimulatedCache(WEIGHTS, capacity=None)
    assert cache.send(["a", "b"]) == 0
    assert cache.send(["a", "c", "b"]) == 10
    assert cache.send(["a", "b", "c"]) == 30
    assert cache.send(["a", "b", "c"]) == 60
    assert cache.send(["b", "a"]) == 0
    assert cache.send([]) == 0
    assert cache.send(["\ud800", "\ud800"]) == 0
    assert cache.send(["\ud800", "\ud800", "a"]) == 10


def test_the_oldest_end_leaves_first_and_never_the_prompt_just_sent():
    cache = SimulatedCache(WEIGHTS, capacity=40)
    for prompt, found in (
        ("ab", 0),
        ("c", 0),  # b leaves for it, a stays
        ("ab", 10),  # c leaves
        ("c", 0),  # b leaves
        ("cba", 30),  # the other a leaves; 60 tokens are too many, but they were just sent
        ("cba", 60),
        ("c", 30),  # now what stands below c leaves
        ("cba", 30),
    ):
        assert cache.send(list(prompt)) == found


def test_a_body_without_tokens_counts_as_one():
    cache = SimulatedCache(WEIGHTS, capacity=None)
    cache.send(["none"])
    assert cache.send(["none"]) == 1


def test_a_body_of_unknown_weight_is_refused():
    cache = SimulatedCache(WEIGHTS, capacity=None)
    with pytest.raises(KeyError, match="other"):
        cache.send(["a", "other"])


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=25),
    st.integers(1, 25),
    st.lists(st.integers(1, 6), min_size=6, max_size=6),
)
def test_it_equals_the_plain_cache(prompts: list[list[int]], capacity: int, weight: list[int]):
    cache = SimulatedCache({str(number): tokens for number, tokens in enumerate(weight)}, capacity=capacity)
    plain = PlainCache(capacity, weight)
    for prompt in prompts:
        expected = sum(weight[number] for number in prompt[: plain.matched(prompt)])
        assert cache.send([str(number) for number in prompt]) == expected
        plain.admit(prompt)
        cache._blocks.check_integrity(cache._view.references())
