"""Messages, and what they were planned from: as the engine reads them, as servers get them, as stores keep them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import ContextBlock, EngineConfig, ReuseEngine, Source
from contextpilot_core.tokens import estimate_tokens
from contextpilot_integrations.serving.chat import Asked, Entry, Setting, Turn
from contextpilot_integrations.serving.chat.entries import (
    as_rendered,
    asked_of,
    known_sources,
    message_tokens,
    read,
    record_of,
    sent,
    split_turns,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WORDS = {"type": "text", "text": "What is this?"}
USER, ASSISTANT = {"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}
CONTEXT = {"role": "user", "content": "[Doc 1]\n===\ntea\n==="}


# --- read and sent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "is_read", "is_sent"),
    [
        (Entry(ASSISTANT), [ASSISTANT], [ASSISTANT]),
        (Entry(USER, Asked("hello", ())), [USER], [USER]),
        (
            Entry(CONTEXT, Asked("", ("tea",), (WORDS, IMAGE))),
            [CONTEXT, {"role": "user", "content": [WORDS, IMAGE]}],
            [{"role": "user", "content": [{"type": "text", "text": CONTEXT["content"]}, WORDS, IMAGE]}],
        ),
        (
            Entry(None, Asked("", (), (IMAGE,))),
            [{"role": "user", "content": [IMAGE]}],
            [{"role": "user", "content": [IMAGE]}],
        ),
        (Entry(None, Asked("", ())), [], []),
    ],
    ids=["not ours", "text", "context and parts", "parts alone", "nothing"],
)
def test_an_entry_is_read_in_texts_and_sent_as_one_message(entry, is_read, is_sent):
    assert list(entry.read) == is_read
    assert list(entry.sent) == is_sent
    assert read([entry, entry]) == 2 * is_read
    assert sent([entry, entry]) == 2 * is_sent


def test_what_is_sent_leaves_the_entry_as_it_is():
    entry = Entry(dict(CONTEXT), Asked("", ("tea",), (IMAGE,)))
    entry.sent[0]["content"].append("more")
    assert entry == Entry(CONTEXT, Asked("", ("tea",), (IMAGE,)))


# --- turns ---------------------------------------------------------------------------------------------------------


def test_a_turn_goes_from_a_question_to_the_next():
    system, tool = Entry({"role": "system", "content": "s"}), Entry({"role": "tool", "content": "t"})
    answer, asked, picture = Entry(ASSISTANT), Entry(USER), Entry(None, Asked("", (), (IMAGE,)))
    head, turns = split_turns([system, answer, asked, tool, answer, picture, answer, asked])
    assert head == [system, answer]
    assert turns == [[asked, tool, answer], [picture, answer], [asked]]
    assert split_turns([]) == ([], [])
    assert [each.is_question for each in (system, tool, answer, asked, picture)] == [False] * 3 + [True] * 2


# --- records -------------------------------------------------------------------------------------------------------


def stored(asked, text):
    """What comes back from a store that keeps JSON."""
    return asked_of(json.loads(json.dumps(record_of(asked, text))), text)


@given(
    query=st.text(),
    blocks=st.lists(st.text(), min_size=1, max_size=4),
    base=st.text(),
    tokens=st.integers(0, 2**40),
    text=st.text(),
)
def test_a_record_gives_back_what_a_question_was_planned_from(query, blocks, base, tokens, text):
    order = tuple(reversed(range(len(blocks))))
    asked = Asked(query, tuple(ContextBlock(text=block) for block in blocks), order=order, base=base, tokens=tokens)
    assert stored(asked, text) == asked


def test_a_block_is_kept_as_far_as_json_can_hold_it():
    block = ContextBlock(text="tea", id=7, title="Tea", metadata={"page": 1, "by": None, "tags": ["a", {"b": 2.5}]})
    asked = Asked("q", ("milk", block), order=(1, 0))
    assert record_of(asked, "m")["blocks"][0] == {"text": "milk"}
    assert stored(asked, "m").blocks == (ContextBlock(text="milk"), block)


@pytest.mark.parametrize("value", [object(), {"deep": {object()}}, float("nan"), b"bytes", "loop"], ids=repr)
def test_what_json_cannot_hold_is_left_out(value):
    if value == "loop":
        value = []
        value.append(value)
    (block,) = stored(Asked("q", (ContextBlock(text="tea", id=object(), metadata={"x": value, 2: "b"}),)), "m").blocks
    assert block == ContextBlock(text="tea", metadata={"2": "b"})


@pytest.mark.parametrize("metadata", [7, "text", [["a", 1]]])
def test_metadata_that_nobody_wrote_is_no_record(metadata):
    assert asked_of({**GOOD, "blocks": [{"text": "tea", "metadata": metadata}]}, "t") is None


@pytest.mark.parametrize("order", [None, ()])
def test_what_has_no_order_gets_none(order):
    asked = Asked("q", ("tea",), order=order)
    assert stored(asked, "m").order is None
    record = record_of(asked, "m")
    del record["order"]
    assert asked_of(record, "m").order is None


GOOD = {"query": "q", "blocks": [{"text": "tea"}], "order": [0], "tokens": 3, "base": ""}


def test_a_record_without_what_it_showed_is_believed():
    assert asked_of(GOOD, "whatever") == Asked("q", (ContextBlock(text="tea"),), order=(0,), tokens=3)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "x",
        5,
        [],
        [1],
        {},
        {"query": "q"},
        {**GOOD, "query": None},
        {**GOOD, "query": 5},
        {**GOOD, "blocks": None},
        {**GOOD, "blocks": "tea"},
        {**GOOD, "blocks": [None]},
        {**GOOD, "blocks": ["tea"]},
        {**GOOD, "blocks": [{"text": 5}]},
        {**GOOD, "blocks": [{"body": "tea"}]},
        {**GOOD, "blocks": [{"text": "tea", "title": 5}]},
        {**GOOD, "blocks": [{"text": "tea", "more": 1}]},
        {**GOOD, "order": 5},
        {**GOOD, "order": ["first"]},
        {**GOOD, "order": [[0]]},
        {**GOOD, "order": [None]},
        {**GOOD, "tokens": None},
        {**GOOD, "tokens": "many"},
        {**GOOD, "tokens": float("inf")},
        {**GOOD, "base": None},
        {**GOOD, "base": ["x"]},
        {**GOOD, "shown": 5},
        {**GOOD, "blocks": {"text": "tea"}},
        {**GOOD, "blocks": ""},
        {**GOOD, "blocks": [{"text": "tea", "metadata": {5: "five"}}]},
        {**GOOD, "blocks": [{5: "tea"}]},
        {**GOOD, "order": None},
        {**GOOD, "order": "0"},
        {**GOOD, "order": {"0": 0}},
        {**GOOD, "order": [float("nan")]},
        {**GOOD, "tokens": -1},
        {**GOOD, "tokens": 10**400},
        {**GOOD, "tokens": float("nan")},
        {**GOOD, "labels": 5},
        {**GOOD, "labels": "12"},
        {**GOOD, "labels": [0]},
        {**GOOD, "labels": [-3]},
        {**GOOD, "labels": [True]},
        {**GOOD, "labels": ["1"]},
        {**GOOD, "frame": None},
        {**GOOD, "frame": "ab"},
        {**GOOD, "frame": {"a": 1, "b": 2}},
        {**GOOD, "frame": ["a"]},
        {**GOOD, "frame": ["a", "b", "c"]},
        {**GOOD, "frame": ["a", 5]},
    ],
)
def test_what_others_wrote_is_no_record(record):
    assert asked_of(record, "text") is None


@pytest.mark.parametrize("text", ["[deleted]", "[Doc 1]\n===\nt…", "", None, "[Doc 1]\n===\ntea\n===\n\nWhy? Now!"])
def test_a_message_that_somebody_changed_is_theirs(text):
    record = record_of(Asked("Why?", ("tea",), order=(0,)), "[Doc 1]\n===\ntea\n===\n\nWhy?")
    assert asked_of(record, text) is None


@pytest.mark.parametrize("text", ["[Doc 1]\r\n===\r\ntea\r\n===\r\n\r\nWhy?", " [Doc 1]\n===\ntea\n===\n\nWhy?\n"])
def test_spaces_and_ends_of_lines_are_no_change(text):
    record = record_of(Asked("Why?", ("tea",), order=(0,)), "[Doc 1]\n===\ntea\n===\n\nWhy?")
    assert asked_of(record, text) == Asked("Why?", (ContextBlock(text="tea"),), order=(0,))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "labels", "frame", "shown", "more"]), VALUES, max_size=9), st.data())
def test_whatever_stands_where_a_record_should_can_be_read(spoilt, data):
    """It is a record that can be planned from, or none."""
    record = data.draw(st.sampled_from([{**GOOD, **spoilt}, spoilt]))
    asked = asked_of(record, "text")
    if asked is not None:
        turn = Turn(Setting(engine=ReuseEngine(), count=estimate_tokens), [], asked, room=50)
        assert asked_of(json.loads(json.dumps(record_of(turn.entry.asked, "text"))), "text") is not None


def test_orders_of_wrong_numbers_are_no_reason_to_fail():
    """Whatever a store made of an order: the engine takes it, or plans without."""
    setting = Setting(engine=ReuseEngine(), count=estimate_tokens)
    for order in ([True, False], [1.0, 0.0], ["1", "0"], [7, 7], [-1, 0], [10**30]):
        asked = asked_of({**GOOD, "blocks": [{"text": "tea " * 40}, {"text": "milk " * 40}], "order": order}, "text")
        turn = Turn(setting, [], asked)
        assert sorted(turn.plan.order) == [0, 1]
        turn.failed()
    setting.engine.check_integrity()
    assert setting.engine.stats().in_flight == 0


# --- tokens of messages: their texts, whatever form they have, and four for each message

TEXT = {"type": "text", "text": "two words"}


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("two words", 6),
        ("", 4),
        (None, 4),
        ([], 4),
        ([TEXT, TEXT], 8),
        ((TEXT,), 6),
        (["two words", TEXT], 8),  # LangChain's parts may be texts
        ([IMAGE, TEXT], 6),
        ([{"type": "text", "text": None}, {"type": "text"}, 5, None], 4),
        (5, 4),
    ],
)
def test_a_message_counts_its_texts(content, tokens):
    assert message_tokens({"role": "user", "content": content}, lambda text: len(text.split())) == tokens


def test_a_message_without_content_counts_what_a_template_puts_around_it():
    assert message_tokens({"role": "assistant", "tool_calls": []}, len) == 4


# --- templates around the context ----------------------------------------------------------------------------------

FRAMED = Asked("Why?", (ContextBlock(text="tea"),), order=(0,), frame=("Use:\n", "Answer Why?"))
RENDERED = {"role": "user", "content": "[Doc 1]\n===\ntea\n===\n\nAnswer Why?"}


def test_the_head_of_a_template_is_sent_and_not_read():
    entry = Entry(RENDERED, FRAMED)
    assert (FRAMED.head, FRAMED.words, Asked("q", ()).head, Asked("q", ()).words) == ("Use:\n", "Answer Why?", "", "q")
    (message,) = entry.sent
    assert message == {"role": "user", "content": "Use:\n" + RENDERED["content"]}
    assert entry.read == (RENDERED,)
    assert as_rendered(message, FRAMED) == RENDERED
    with_image = Entry(RENDERED, replace(FRAMED, parts=(IMAGE,)))
    assert with_image.sent == ({"role": "user", "content": [{"type": "text", "text": message["content"]}, IMAGE]},)


@pytest.mark.parametrize("asked", [None, Asked("q", ()), FRAMED])
def test_other_messages_have_no_head(asked):
    assert as_rendered(USER, asked) is USER


def test_a_record_keeps_the_template():
    text = "Use:\n" + RENDERED["content"]
    assert asked_of(json.loads(json.dumps(record_of(FRAMED, text))), text) == FRAMED
    assert "frame" not in record_of(Asked("q", ("tea",)), "t")


@pytest.mark.parametrize("frame", [None, 7, [7, "b"], ["a", None], [], ["a"], "abc"])
def test_a_template_that_nobody_wrote_is_no_record(frame):
    assert asked_of({**GOOD, "frame": frame}, "t") is None


@pytest.mark.parametrize("renderer", [None, lambda block: f"<{block.text}>"], ids=["text", "rendered"])
def test_where_an_engine_knows_only_the_text_of_a_source_the_question_knows_the_block(renderer):
    config = EngineConfig(renderer=renderer)
    shown = "tea" if renderer is None else "<tea>"
    tea, salt = ContextBlock(text="tea", id="t", metadata={"page": 7}), ContextBlock(text="salt", id="s")
    sources = {
        1: Source(label=1, blocks=(ContextBlock(text=shown),)),
        2: Source(label=2, blocks=(salt,)),
        3: Source(label=3, blocks=(ContextBlock(text="of others"),)),
    }
    found = known_sources(sources, [Asked("q", ("milk", tea)), Asked("p", (tea,))], config)
    assert found == {**sources, 1: Source(label=1, blocks=(tea,))}


# --- halves of characters ------------------------------------------------------------------------------------------


def test_what_is_asked_is_made_whole_but_for_what_nobody_sends():
    block = ContextBlock(text="tea \ud83d", title="T\udfff", id="\ud83d", metadata={"by": "\ud83d"})
    asked = Asked(
        "q\ud83d\ude00", ("milk\ud800", block, "salt"), ({"type": "text", "text": "\ude00"},), frame=("\ud83d", "")
    )
    assert (asked.query, asked.parts, asked.frame) == (
        "q\U0001f600",
        ({"type": "text", "text": "\ufffd"},),
        ("\ufffd", ""),
    )
    assert asked.blocks == (
        "milk\ufffd",
        ContextBlock(text="tea \ufffd", title="T\ufffd", id="\ud83d", metadata={"by": "\ud83d"}),
        "salt",
    )
    assert json.dumps(record_of(asked, "t"), ensure_ascii=False).encode()
    assert Asked("q", asked.blocks).blocks[1] is asked.blocks[1]


def test_what_a_renderer_makes_is_sent_whole():
    engine = ReuseEngine(EngineConfig(renderer=lambda block: f"{block.text} {(block.metadata or {}).get('by')}"))
    setting = Setting(engine=engine, count=estimate_tokens)
    asked = Asked("q", (ContextBlock(text="tea " * 40, metadata={"by": "\ud83d"}),))
    first = Turn(setting, [], asked)
    assert "\ufffd" in first.prompt[0]["content"]
    first.sent()
    again = Turn(setting, [first.entry, Entry({"role": "assistant", "content": "ok"})], asked)
    assert json.dumps(again.prompt, ensure_ascii=False).encode()
    again.sent()
    assert engine.stats().in_flight == 0
