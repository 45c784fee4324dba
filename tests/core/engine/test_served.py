"""What callers say of a response: refused before anything changes, or counted as what it can be."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import EngineConfig, RequestError, RequestTypeError, ReuseEngine
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.types import PromptTokens, Served

IDS = list(range(64))


def told(**tokens):
    return Served(prompt_tokens=64, cached_tokens=0, tokens=PromptTokens(**{"token_ids": IDS, **tokens}))


@pytest.fixture(params=[False, True], ids=["estimate", "events"])
def engine(request):
    return ReuseEngine(EngineConfig(cache_tokens=100), mirror=KVMirror(16) if request.param else None)


@pytest.mark.parametrize(
    ("served", "error"),
    [
        (None, RequestTypeError),
        ({"prompt_tokens": 3}, RequestTypeError),
        (Served(prompt_tokens=math.nan), RequestTypeError),
        (Served(prompt_tokens=math.inf, cached_tokens=3), RequestTypeError),
        (Served(prompt_tokens=3.0), RequestTypeError),
        (Served(prompt_tokens="3"), RequestTypeError),
        (Served(prompt_tokens=True), RequestTypeError),
        (Served(prompt_tokens=-1), RequestError),
        (Served(prompt_tokens=10**15), RequestError),
        (Served(prompt_tokens=10**5_000), RequestError),
        (Served(prompt_tokens=100, cached_tokens=-5), RequestError),
        (Served(prompt_tokens=100, cached_tokens=10**400), RequestError),
        (Served(prompt_tokens=100, cached_tokens=[16]), RequestTypeError),
        (Served(cache_salt=5), RequestTypeError),
        (Served(tokens=IDS), RequestTypeError),
        (told(token_ids=5), RequestTypeError),
        (told(token_ids="abc"), RequestTypeError),
        (told(token_ids=b"abcd"), RequestTypeError),
        (told(token_ids=[1, 2**40]), RequestError),
        (told(token_ids=[1, "2"]), RequestError),
        (told(token_ids=[1, math.nan]), RequestError),
        (told(start=-1), RequestError),
        (told(start=65), RequestError),
        (told(start="0"), RequestTypeError),
        (told(ends=7), RequestTypeError),
        (told(ends=[None, 65]), RequestError),
        (told(ends=[math.nan]), RequestTypeError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_what_cannot_be_is_refused_and_changes_nothing(engine, served, error):
    plan = engine.plan(["a" * 320])
    before = engine.stats()
    with pytest.raises(error):
        engine.observe(plan, served)
    assert engine.stats() == before
    engine.check_integrity()
    engine.observe(plan, told(start=0, ends=[64]))
    assert engine.stats().compared == 1


def test_more_cached_tokens_than_the_prompt_has_are_all_of_it(engine):
    plan = engine.plan(["a" * 320])
    assert engine.observe(plan, Served(prompt_tokens=64, cached_tokens=2**40)).reported == 64
    assert engine.stats().reported_tokens == 64


def test_numbers_of_arrays_are_numbers(engine):
    plan = engine.plan(["a" * 320])
    served = Served(
        prompt_tokens=numpy.int64(64),
        cached_tokens=numpy.int32(16),
        tokens=PromptTokens(token_ids=numpy.arange(64), start=numpy.int64(0), ends=numpy.array([64])),
    )
    observation = engine.observe(plan, served)
    assert type(observation.reported) is int
    assert type(engine.stats().prompt_tokens) is int
    engine.check_integrity()


anything = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.binary(max_size=3))
numbers = st.one_of(anything, st.lists(anything, max_size=4))


@given(anything, anything, anything, numbers, anything, numbers)
def test_whatever_is_said_is_counted_or_refused(prompt, cached, salt, ids, start, ends):
    engine = ReuseEngine(mirror=KVMirror(16))
    plan = engine.plan(["a" * 320])
    tokens = PromptTokens(token_ids=ids, start=start, ends=ends)
    try:
        engine.observe(plan, Served(prompt_tokens=prompt, cached_tokens=cached, tokens=tokens, cache_salt=salt))
    except RequestError:
        assert engine.stats().compared == engine.stats().unreported == 0
    stats = engine.stats()
    assert all(math.isfinite(value) for value in vars(stats).values() if isinstance(value, int | float))
    engine.check_integrity()
