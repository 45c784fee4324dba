"""Messages and texts by digest: what is equal, what differs, and what is refused."""

import hashlib
import json
from collections import UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import ContextRequest, ReuseEngine
from contextpilot_core.errors import RequestError
from contextpilot_core.prompt.messages import (
    HistoryDigest,
    _history_message,
    body_digest,
    distinct,
    message_digest,
    message_text,
    plain,
    sendable,
)


def test_p12_identity_is_the_exact_text() -> None:
    texts = ["caf\u00e9", "cafe\u0301", "\ud800", "\udfff", "?", "", "\x00", " ", "\r\n", "\n", "x" * 20_000_000]
    digests = [body_digest(text) for text in texts]
    assert len(set(digests)) == len(texts)
    assert all(len(digest) == 32 for digest in digests)
    assert body_digest("abc").hex().startswith("ba7816bf8f01cfea")


@given(st.lists(st.sampled_from("abcd")))
def test_p8_distinct(keys: list[str]) -> None:
    kept, repeats = distinct(keys)
    assert sorted(kept + repeats) == list(range(len(keys)))
    assert [keys[at] for at in kept] == list(dict.fromkeys(keys))
    assert list(kept) == sorted(kept)
    assert list(repeats) == sorted(repeats)


def test_p8_example() -> None:
    assert distinct(["a", "a", "b"]) == ((0, 2), (1,))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        ("", ""),
        ([{"type": "text", "text": "a"}], "a"),
        (({"type": "text", "text": "a", "cache_control": {}},), "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], None),
        ([{"type": "text", "text": None}], None),
        (["a"], None),
        ([], None),
        (None, None),
        (7, None),
    ],
)
def test_message_text(content: Any, text: str | None) -> None:
    assert message_text({"role": "user", "content": content}) == text


def test_message_text_without_content() -> None:
    assert message_text({"role": "assistant"}) is None


EQUAL: list[tuple[Any, Any]] = [
    ({"role": "user", "content": "a"}, {"content": [{"type": "text", "text": "a"}], "role": "user"}),
    ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a", "tool_calls": None}),
    ({"role": "assistant"}, {"role": "assistant", "content": None}),
    (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "f": {"b": 1, "a": 2}}]},
        {"tool_calls": ({"f": {"a": 2, "b": 1}, "id": "1"},), "role": "assistant"},
    ),
    ({"role": "user", "content": None, "x": {3, 1, 2}}, {"role": "user", "content": None, "x": {2, 3, 1}}),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_messages_have_one_digest(one: Any, other: Any) -> None:
    assert message_digest(one) == message_digest(other)


class Part:
    """A value of a client library, compared by address."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_foreign_objects_count_by_content() -> None:
    digests = [message_digest({"role": "user", "content": None, "part": Part(value)}) for value in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_different_messages_have_different_digests() -> None:
    messages: list[Any] = [
        {"role": "user", "content": ""},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "user", "content": "[]"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "a"},
        {"role": None, "content": "a"},
        {"role": "user", "content": "a", "name": "b"},
        {"role": "user", "content": "a", "name": ""},
        {"role": "user\n", "content": "a"},
        {"role": "user", "content": "\na"},
        {"role": "user", "content": ["a"]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
        {"role": "user", "content": "e\u0301"},
        {"role": "user", "content": "\u00e9"},
        {"role": "user", "content": "\ud800"},
        {"role": "user", "content": "?"},
        {"role": "user", "content": None, "x": {1: 2}},
        {"role": "user", "content": None, "x": {"1": 2}},
        {"role": "user", "content": None, "x": b"1"},
        {"role": "user", "content": None, "x": "31"},
    ]
    assert len({message_digest(message) for message in messages}) == len(messages)


def test_a_message_that_contains_itself_is_refused() -> None:
    message: dict[str, Any] = {"role": "user", "content": None}
    message["self"] = message
    with pytest.raises(RequestError, match="contains itself"):
        message_digest(message)


def test_a_message_that_nests_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RequestError, match="nested too deeply"):
        message_digest({"role": "user", "content": None, "deep": deep})


def nested(wrap: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(5_000):
        value = wrap(value)
    return value


ENDLESS: list[Any] = []
ENDLESS.append({"type": "text", "text": "a", "self": ENDLESS})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": ENDLESS},
        {"role": "user", "content": "a", "x": ENDLESS},
        {"role": "assistant", "content": [{"type": "text", "text": "a", "x": nested(lambda value: {"k": value})}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "x": nested(lambda value: (value,))}]},
        {"role": "user", "content": nested(lambda value: [value])},
    ],
    ids=["itself", "itself in a field", "mappings", "tuples", "lists"],
)
def test_a_message_without_an_end_is_refused_at_the_door_and_changes_nothing(message: dict[str, Any]) -> None:
    engine = ReuseEngine()
    engine.plan(["kept"])
    before = engine.stats()
    requests = [ContextRequest(blocks=["a"]), ContextRequest(blocks=["a"], messages=[message])]
    with pytest.raises(RequestError, match="contains itself, or is nested too deeply"):
        engine.plan(["a"], messages=[message])
    with pytest.raises(RequestError, match=r"requests\[1\]: a message contains itself"):
        engine.plan_batch(requests)
    assert engine.stats() == before
    engine.check_integrity()


def test_the_digest_is_of_framed_fields_then_the_text() -> None:
    text = hashlib.sha256(b"abc").digest()
    expected = hashlib.sha256(b'["user",{},null,true]\n' + text).digest()
    assert message_digest({"role": "user", "content": "abc"}) == expected
    named = hashlib.sha256(b'["user",{"name":"n"},null,true]\n' + text).digest()
    assert message_digest({"content": "abc", "name": "n", "role": "user"}) == named
    no_text = hashlib.sha256(b'["assistant",{},null,false]\n').digest()
    assert message_digest({"role": "assistant", "content": None}) == no_text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
histories = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional={"content": st.none() | st.text(max_size=5), "name": st.text(max_size=3), "x": json_values},
    ),
    max_size=4,
)


@given(histories)
def test_a_digest_is_the_same_after_a_way_through_json_and_with_the_text_read_before(messages: list[Any]) -> None:
    for message in messages:
        there = dict(reversed(json.loads(json.dumps(message)).items()))
        assert message_digest(there) == message_digest(message)
        text = message_text(message)
        assert message_digest(message, None if text is None else body_digest(text)) == message_digest(message)


@given(histories, histories)
def test_histories_have_equal_digests_when_their_messages_have(one: list[Any], other: list[Any]) -> None:
    grown = HistoryDigest()
    for message in one:
        grown.add(message)
    assert grown.value == HistoryDigest(one).value
    alike = list(map(message_digest, one)) == list(map(message_digest, other))
    assert (HistoryDigest(one).value == HistoryDigest(other).value) == alike


def test_the_digest_of_a_history_can_be_asked_between_messages() -> None:
    hello, bye = {"role": "user", "content": "hello"}, {"role": "user", "content": "bye"}
    digest = HistoryDigest([hello])
    before = digest.value
    digest.add(bye)
    assert (before, digest.value) == (HistoryDigest([hello]).value, HistoryDigest([hello, bye]).value)
    assert HistoryDigest([bye, hello]).value != digest.value


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_text_that_may_be_pointed_to_is_known_by_itself(role: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": "shown"}], "name": "n"}
    found = _history_message(message, plain)
    assert (found.text, found.key) == ("shown", body_digest("shown"))
    assert found.digest == message_digest(message) != found.key


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "shown"},
        {"role": "system", "content": "shown"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ],
)
def test_where_no_hint_may_point_the_whole_message_is_what_is_known(message: dict[str, Any]) -> None:
    found = _history_message(message, plain)
    assert found.text is None
    assert found.key == found.digest == message_digest(message)


def test_a_message_of_the_history_is_sealed_and_no_later_change_reaches_it() -> None:
    def seal(digest: bytes) -> bytes:
        return b"sealed " + digest

    call, more = {"id": "1", "function": {"name": "search"}}, {"x": [1]}
    message = {"role": "user", "content": [{"type": "text", "text": "shown"}], "tool_calls": [call], "more": (more,)}
    found = _history_message(message, seal)
    assert found.key == seal(body_digest("shown"))
    assert found.digest == seal(message_digest(message))
    message["content"][0]["text"] = call["id"] = "changed"  # type: ignore[index]
    assert found.message["content"] == [{"type": "text", "text": "shown"}]
    more["x"].append(2)
    assert found.message["tool_calls"] == [{"id": "1", "function": {"name": "search"}}]
    assert found.message["more"] == ({"x": [1]},)


def laughing(depth: int) -> Any:
    """A value of few parts that would be written without an end in sight."""
    value: Any = ["ha"]
    for _ in range(depth):
        value = [value, value]
    return value


class Odd:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (laughing(40), "contains itself"),
        ({"part": Odd(laughing(40))}, "contains itself"),
        (MappingProxyType({"deep": nested(lambda value: MappingProxyType({"k": value}))}), "nested too deeply"),
        ([10**5_000], "a whole number of 16610 bits; give it as text"),
        (10**5_000, "a whole number of"),
        (Odd(10**5_000), "contains itself"),
        (nested(lambda value: UserDict(k=value)), "nested too deeply"),
    ],
    ids=["shared parts", "an object", "mappings", "number", "content", "its number", "dicts"],
)
@pytest.mark.parametrize("field", ["content", "x"])
def test_what_cannot_be_written_is_refused_at_the_door(value: Any, words: str, field: str) -> None:
    engine = ReuseEngine()
    with pytest.raises(RequestError, match=words):
        engine.plan(["a"], messages=[{"role": "user", "content": "hi", field: value}])
    assert engine.stats().known_blocks == 0


HALVES = ["\ud83d", "\ude00 x", "\ud83d\ude00", "é\ud800\ud800z"]


@pytest.mark.parametrize("half", HALVES)
def test_what_is_sent_is_unicode_whatever_holds_half_a_character(half: str) -> None:
    engine, rest = ReuseEngine(), " ".join(map(str, range(200)))
    fields: dict[str, Any] = {"query": half, "instructions": half}
    call = {"function": {"name": "f", "arguments": half}, "more": [(half,)]}
    history = [{"role": "assistant", "content": half, "tool_calls": [call]}, {"role": "user", "content": [half]}]
    plan = engine.plan([half + rest, rest], messages=history, **fields)
    json.dumps(plan.messages, ensure_ascii=False).encode()
    plan.text.encode()
    assert half in plan.expand()[0]
    assert call["function"]["arguments"] == half  # the caller's stays as it was
    after = [*history, plan.messages[-1], {"role": "assistant", "content": half}]
    again = engine.plan([half + rest, "new"], messages=[{"role": "system", "content": half}, *after], **fields)
    assert [hint.label for hint in again.hints] == [1]
    assert again.recognised[3]
    json.dumps(again.messages, ensure_ascii=False).encode()


@given(st.text(st.characters() | st.sampled_from("\ud800\udfff\ude00a"), max_size=20))
def test_a_sendable_text_is_as_long_and_changed_in_its_halves_only(text: str) -> None:
    found = sendable(text)
    found.encode()
    assert sendable(found) == found
    pairs = zip(text, found, strict=True)
    assert all(new == ("\ufffd" if "\ud800" <= old <= "\udfff" else old) for old, new in pairs)
