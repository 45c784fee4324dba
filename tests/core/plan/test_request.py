"""The door: what a request may be, what it becomes, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, RequestError, RequestTypeError
from contextpilot_core.plan.request import Job, prepare
from contextpilot_core.prompt.messages import body_digest, message_digest
from contextpilot_core.tokens import Weights, checked, estimate_tokens

CONFIG = EngineConfig()
WEIGH = Weights(estimate_tokens)
TALK = ({"role": "system", "content": "Be brief."}, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]})


def prepared(*blocks: Any, config: EngineConfig = CONFIG, **fields: Any) -> Job:
    return prepare(ContextRequest(blocks=blocks, **fields), config, WEIGH)


def test_a_request_by_hand():
    job = prepared("tea", ContextBlock(text="milk", id=7), "tea", "a" * 40, query="Which one?", messages=TALK)
    assert job.bodies == ("tea", "milk", "tea", "a" * 40)
    assert job.digests == tuple(map(body_digest, job.bodies))
    assert job.tokens == (1, 1, 1, 10)
    assert (job.positions, job.repeats) == ((0, 1, 3), (2,))
    assert [entry.message for entry in job.history] == list(TALK)
    assert [entry.digest for entry in job.history] == list(map(message_digest, TALK))
    assert job.history_tokens == (2, 1)  # None is counted as it is written
    assert job.query_tokens == 2
    assert (job.state, job.request_id, job.home) == ("open", "", None)


def test_instructions_stand_in_front_and_are_no_message_of_the_request():
    job = prepared("tea", instructions="Be brief.", messages=TALK[1:])
    assert [entry.message["role"] for entry in job.history] == ["system", "assistant"]
    assert job.history_tokens[0] == estimate_tokens("Be brief.")
    assert job.request.messages == TALK[1:]
    both = prepared("tea", instructions="Be brief.", messages=TALK)
    assert [entry.message for entry in both.history] == list(TALK)


def test_what_is_at_rest_already_is_taken_as_it_is():
    request = ContextRequest(blocks=("tea",), query="q")
    assert prepare(request, CONFIG, WEIGH).request is request


def test_whatever_can_be_gone_through_once_becomes_a_tuple():
    def some() -> Iterator[str]:
        yield from ("tea", "milk")

    history = [dict(TALK[0])]
    request = ContextRequest(blocks=some(), messages=iter(history), session_id="s", namespace="n", remember=False)  # type: ignore[arg-type]
    job = prepare(request, CONFIG, WEIGH)
    assert job.request == replace(request, blocks=("tea", "milk"), messages=(TALK[0],))
    history[0]["content"] = "changed"
    assert job.request.messages == (TALK[0],) == (job.history[0].message,)


def test_a_message_may_be_any_mapping():
    job = prepared(messages=[MappingProxyType({"role": "user", "content": "hi"})])
    assert job.request.messages == ({"role": "user", "content": "hi"},)


def test_without_dedup_repeats_take_part():
    job = prepared("tea", "tea", config=EngineConfig(dedup=False))
    assert (job.positions, job.repeats) == ((0, 1), ())


def test_the_renderer_makes_the_bodies_that_count():
    seen: list[ContextBlock] = []
    config = EngineConfig(renderer=lambda block: seen.append(block) or f"{block.title}: {block.text}")
    job = prepared("tea", ContextBlock(text="tea", title="T"), ContextBlock(text="x", title="None: tea"), config=config)
    assert job.bodies == ("None: tea", "T: tea", "None: tea: x")
    assert seen[0] == ContextBlock(text="tea")
    assert job.digests == tuple(map(body_digest, job.bodies))
    with pytest.raises(ZeroDivisionError):
        prepared("tea", config=EngineConfig(renderer=lambda block: str(1 / 0)))


def test_digests_are_sealed_and_a_batch_shares_them():
    sealed: list[bytes] = []

    def seal(digest: bytes) -> bytes:
        sealed.append(digest)
        return b"sealed " + digest

    memo: dict[str, bytes] = {}
    jobs = [
        prepare(ContextRequest(blocks=blocks), CONFIG, WEIGH, seal=seal, digests=memo)
        for blocks in (["tea", "milk"], ["milk", "salt"])
    ]
    assert [job.digests for job in jobs] == [(memo["tea"], memo["milk"]), (memo["milk"], memo["salt"])]
    assert memo["tea"] == b"sealed " + body_digest("tea")
    assert sealed == [body_digest(text) for text in ("tea", "milk", "salt")]


def test_every_text_is_counted_once_by_the_counter_that_was_given():
    counted: list[str] = []
    weigh = Weights(lambda text: counted.append(text) or 0)
    job = prepare(ContextRequest(blocks=["tea", "tea", ""], query="q", messages=TALK[:1]), CONFIG, weigh)
    assert counted == ["tea", "", "Be brief.", "q"]
    assert job.tokens == (1, 1, 1)  # a block is never free
    assert (job.history_tokens, job.query_tokens) == ((0,), 0)
    with pytest.raises(RequestTypeError, match="token_counter"):
        prepare(ContextRequest(blocks=["tea"]), CONFIG, Weights(checked(lambda text: None)))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"blocks": "tea"}, r"blocks must be a sequence of strings or ContextBlocks.* got one str;.*blocks=\[\.\.\.\]"),
        ({"blocks": b"tea"}, "got one bytes"),
        ({"blocks": ContextBlock(text="tea")}, "got one ContextBlock"),
        ({"blocks": {"text": "tea"}}, "got one dict"),
        ({"blocks": None}, "got one NoneType"),
        ({"blocks": 7}, "got one int"),
        ({"blocks": ["tea", None]}, r"blocks\[1\] must be a str or a ContextBlock, got NoneType"),
        ({"blocks": [["tea"]]}, r"blocks\[0\] must be a str or a ContextBlock, got list"),
        ({"blocks": [ContextBlock(text=None)]}, r"blocks\[0\]: its text must be a str, got NoneType"),
        ({"blocks": [ContextBlock(text="t", title=5)]}, r"blocks\[0\]\.title must be a str or None, got int"),
        ({"messages": "hello"}, r"messages must be a sequence of messages in OpenAI form, got one str"),
        ({"messages": {"role": "user"}}, "messages must be a sequence.* got one dict"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\] must be a mapping with a 'role'"),
        ({"messages": [TALK[0], "x"]}, r"messages\[1\] must be a mapping"),
        ({"query": None}, "query must be a str, got NoneType; give '' for none"),
        ({"instructions": 3}, "instructions must be a str, got int"),
        ({"namespace": None}, "namespace must be a str, got NoneType; give 'default'"),
        ({"session_id": 3}, r"session_id must be a str or None, got int; convert it with str\(\)"),
        ({"request_id": b"r"}, "request_id must be a str or None, got bytes"),
        ({"remember": None}, "remember=None must be True or False"),
        ({"remember": 1}, "remember=1 must be True or False"),
    ],
)
def test_a_wrong_type_is_named(fields: dict[str, Any], words: str):
    with pytest.raises(RequestTypeError, match=words) as caught:
        prepare(ContextRequest(**{"blocks": ["tea"], **fields}), CONFIG, WEIGH)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"session_id": ""}, "session_id='' is empty; give a name, or None"),
        ({"request_id": ""}, "request_id='' is empty"),
        ({"request_id": "r\ud800"}, r"request_id='r\\ud800' holds half a character"),
        ({"session_id": "\udc00"}, "session_id=.* holds half a character"),
        ({"namespace": "\udfff"}, "namespace=.* holds half a character"),
        ({"messages": TALK, "instructions": "Be long."}, "differ from the system message"),
    ],
)
def test_a_broken_rule_is_named(fields: dict[str, Any], words: str):
    with pytest.raises(RequestError, match=words) as caught:
        prepare(ContextRequest(**{"blocks": ["tea"], **fields}), CONFIG, WEIGH)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("request_", [["tea"], "tea", None, {"blocks": ["tea"]}])
def test_only_a_request_is_a_request(request_: Any):
    with pytest.raises(RequestTypeError, match="a request must be a ContextRequest, got"):
        prepare(request_, CONFIG, WEIGH)


def test_a_renderer_that_returns_no_text_is_named():
    with pytest.raises(RequestTypeError, match=r"blocks\[1\]: what the renderer returned must be a str, got int"):
        prepared("tea", "", config=EngineConfig(renderer=lambda block: block.text or 5))  # type: ignore[arg-type,return-value]


def test_names_and_texts_may_be_anything_else():
    job = prepared("\ud800", query="\udfff", namespace="", session_id=" ", request_id="ünï-模块")
    assert (job.request.namespace, job.request.request_id) == ("", "ünï-模块")


texts = st.lists(
    st.sampled_from(["", " ", "a", "A", "é", "e\u0301", "\ud800", "a" * 99]) | st.text(max_size=3), max_size=9
)


@given(texts, st.booleans())
def test_positions_are_those_of_distinct_texts(blocks: list[str], dedup: bool):
    job = prepared(*blocks, config=EngineConfig(dedup=dedup))
    first = {text: blocks.index(text) for text in blocks}
    assert job.positions == (tuple(first.values()) if dedup else tuple(range(len(blocks))))
    assert sorted(job.positions + job.repeats) == list(range(len(blocks)))
    assert job.tokens == tuple(max(1, estimate_tokens(text)) for text in blocks)
    again = prepare(job.request, EngineConfig(dedup=dedup), WEIGH)
    assert (again.digests, again.positions, again.request) == (job.digests, job.positions, job.request)


# --- the order of a job


def test_what_leads_ends_at_the_first_hint():
    job = prepared("a", "b", "c", "d")
    job.hints, job.ids = {}, {0: 40, 1: 41, 2: 42, 3: 43}
    assert job.leading((2, 0, 1)) == (42, 40, 41)
    job.hints, job.ids = {1: 5}, {0: 40, 2: 42, 3: 43}
    assert job.leading((3, 0, 1, 2)) == (43, 40)
    assert job.leading((1, 0)) == job.leading(()) == ()
