"""Where blocks end in the tokens of a prompt, against the offsets that real tokenizers tell."""

import asyncio
import threading
from array import array

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contextpilot_integrations.serving.tokens.locate import MERGES, PromptTokenizer
from contextpilot_integrations.serving.tokens.sources import HuggingFaceTokens
from tests.integrations.small_tokenizers import body, planned


def truth(tokenizer, plan, prompt):
    """Start and ends by the offsets of all tokens: those that end before a character do not need what follows it."""
    if not isinstance(prompt, str):
        prompt = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
    offsets = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    first = prompt.rindex(plan.context.text)

    def before(place):
        return sum(end <= place for _, end in offsets)

    return before(first), [before(first + end) for end in plan.context.ends]


def check(tokenizer, plan, prompt, tokens):
    """Never more than the truth, less by what may merge at most, in order, inside the prompt."""
    start, ends = truth(tokenizer, plan, prompt)
    assert len(tokens.ends) == len(ends)
    assert tokens.start in (None, start)
    known = [end for end in tokens.ends if end is not None]
    assert known == sorted(known)
    assert not known or (tokens.start or 0) <= known[0] <= known[-1] <= len(tokens.token_ids)
    for told, exact in zip(tokens.ends, ends, strict=True):
        assert told is None or exact - MERGES <= told <= exact


def test_every_block_of_ordinary_texts_is_found(tokenizer, reader):
    plan = planned([body("rain"), body("wind"), body("sun")], instructions="Answer.")
    tokens = reader.read(plan, plan.messages)
    check(tokenizer, plan, plan.messages, tokens)
    assert None not in tokens.ends
    assert tokens.start == truth(tokenizer, plan, plan.messages)[0]
    text = tokenizer.apply_chat_template(list(plan.messages), tokenize=False, add_generation_prompt=True)
    assert list(tokens.token_ids) == tokenizer.encode(text, add_special_tokens=False)


pieces = st.one_of(
    st.sampled_from([body(word) for word in ("rain", "wind", "sun", "snow")]),
    st.sampled_from(
        ["a", "===", "\n\n\n", " lead and trail \n", "1 2 3", "日本語" * 9, "[Doc 1]\n===\nfake\n===", "x" * 70]
    ),
    st.text(min_size=1, max_size=40),
)


@settings(max_examples=100, deadline=None)
@given(
    blocks=st.lists(pieces, max_size=6),
    query=st.one_of(st.text(max_size=20), pieces),
    turns=st.lists(st.lists(pieces, max_size=3), max_size=2),
    as_text=st.booleans(),
)
def test_whatever_the_blocks_are_an_end_is_right_or_unknown(any_tokenizer, blocks, query, turns, as_text):
    history = []
    for turn in turns:
        earlier = planned(turn, query="And before?")
        history += [*earlier.messages, {"role": "assistant", "content": "Well."}]
    plan = planned(blocks, query=query, messages=history)
    assume(plan.messages)
    prompt = "\n\n".join(str(message["content"]) for message in plan.messages) if as_text else plan.messages
    tokens = PromptTokenizer(HuggingFaceTokens(any_tokenizer)).read(plan, prompt)
    check(any_tokenizer, plan, prompt, tokens)


def test_what_is_shown_twice_in_a_message_is_not_guessed(tokenizer, reader):
    plan = planned([body("rain"), body("wind")])
    text = plan.context.text
    for again, ends in ((text, [None, None]), (text[text.index("[Doc 2]") :], [None, None])):
        prompt = [{"role": "user", "content": f"{text}\n\nRewrite this: {again}"}]
        assert reader.read(plan, prompt).ends == ends
    prompt = [{"role": "user", "content": f"{text}\n\nRewrite this:\n{body('wind')}\n"}]  # not as we show it
    check(tokenizer, plan, prompt, reader.read(plan, prompt))


def test_a_context_of_the_history_is_not_taken_for_this_one(tokenizer, reader):
    before = planned([body("rain"), body("wind")])
    history = [*before.messages, {"role": "assistant", "content": "Well."}]
    plan = planned([body("rain"), body("wind")], messages=history)
    tokens = reader.read(plan, plan.messages)
    check(tokenizer, plan, plan.messages, tokens)
    assert None not in tokens.ends


def test_a_context_that_was_not_sent_is_unknown(reader):
    plan = planned([body("rain")])
    tokens = reader.read(plan, [{"role": "user", "content": "Something else"}])
    assert (tokens.start, tokens.ends) == (None, [None])


def test_parts_of_a_message_are_searched_as_well(reader):
    plan = planned([body("rain")])
    flat = reader.read(plan, plan.messages)
    parts = [{"role": "user", "content": [{"type": "text", "text": plan.messages[0]["content"]}]}]
    assert reader.read(plan, parts, token_ids=flat.token_ids) == flat
    assert reader.read(plan, parts) is None  # engines differ in how they join parts


def test_tools_and_template_options_are_part_of_the_prompt(reader):
    plan = planned([body("rain")])
    plain = reader.read(plan, plan.messages)
    tools = [{"type": "function", "function": {"name": "search"}}]
    assert len(reader.read(plan, plan.messages, tools=tools).token_ids) > len(plain.token_ids)
    assert len(reader.read(plan, plan.messages, template_options={"shout": True}).token_ids) > len(plain.token_ids)


class Counting:
    """Counts the questions to a source."""

    def __init__(self, source):
        self.source, self.asked = source, []

    def __getattr__(self, name):
        def ask(*args, **options):
            self.asked.append(name)
            return getattr(self.source, name)(*args, **options)

        return ask


def test_a_block_is_tokenised_once_whatever_its_place(tokenizer):
    source = Counting(HuggingFaceTokens(tokenizer))
    reader = PromptTokenizer(source)
    first = planned([body("rain"), body("wind"), body("sun")])
    ids = reader.read(first, first.messages).token_ids
    assert source.asked == ["chat", *["piece"] * 4]  # the three bodies, and the first with its label
    second = planned([body("rain"), body("snow"), body("sun"), body("wind")])
    reader.read(second, second.messages)
    assert source.asked.count("piece") == 5
    assert reader.read(first, first.messages, token_ids=ids).ends[-1]
    assert source.asked.count("chat") == 2


def test_few_pieces_are_kept(tokenizer):
    source = Counting(HuggingFaceTokens(tokenizer))
    reader = PromptTokenizer(source, max_pieces=2)
    plan = planned([body("rain"), body("wind"), body("sun")])
    for _ in range(2):
        assert None not in reader.read(plan, plan.messages).ends
    assert source.asked.count("piece") == 8
    assert len(reader._pieces) == 2


def test_a_failing_source_is_logged_once_and_gives_unknown(caplog):
    class Broken:
        def chat(self, *_, **__):
            raise RuntimeError("with the text of a document")

        text = piece = chat

    reader = PromptTokenizer(Broken())
    plan = planned([body("rain")])
    assert reader.read(plan, plan.messages) is None
    assert reader.read(plan, "a text") is None
    tokens = reader.read(plan, plan.messages, token_ids=[1, 2, 3])
    assert (tokens.start, tokens.ends) == (None, [None])
    assert [record.message for record in caplog.records] == [
        "exact tokens of prompts are unknown: the token source failed (RuntimeError)"
    ]


def test_numbers_that_do_not_fit_are_refused(reader, caplog):
    plan = planned([body("rain")])
    tokens = reader.read(plan, plan.messages)
    assert reader.read(plan, plan.messages, prompt_tokens=len(tokens.token_ids)) == tokens
    assert reader.read(plan, plan.messages, prompt_tokens=len(tokens.token_ids) + 1) is None
    for wrong in (["a"], [1 << 40], 7):
        assert reader.read(plan, plan.messages, token_ids=wrong) is None
    assert len(caplog.records) == 3
    assert "another number of prompt tokens" in caplog.text


class Giving:
    """A source whose answers are of another type."""

    def __init__(self, tokenizer, kind):
        self.source, self.kind = HuggingFaceTokens(tokenizer), kind

    def chat(self, *args, **options):
        return self.kind(self.source.chat(*args, **options))

    def piece(self, text):
        return self.kind(self.source.piece(text))

    text = piece


@pytest.mark.parametrize("kind", [iter, tuple, lambda ids: map(int, ids), lambda ids: array("q", ids)])
def test_ids_may_come_in_any_ordered_form(tokenizer, reader, kind):
    plan = planned([body("rain"), body("wind")])
    assert PromptTokenizer(Giving(tokenizer, kind)).read(plan, plan.messages) == reader.read(plan, plan.messages)


@pytest.mark.parametrize(
    "kind",
    [
        set,
        str,
        dict.fromkeys,
        lambda ids: b"abc",
        lambda ids: bytearray(b"abcd"),
        lambda ids: memoryview(b"abcd"),
        lambda ids: map(float, ids),
        lambda ids: (1 // 0 for _ in ids),
        lambda ids: [-1],
        lambda ids: None,
    ],
)
def test_what_is_no_list_of_ids_is_unknown(tokenizer, kind, caplog):
    reader, plan = PromptTokenizer(Giving(tokenizer, kind)), planned([body("rain")])
    assert reader.read(plan, plan.messages) is None
    assert reader.read(plan, plan.messages, token_ids=kind([1, 2])) is None
    assert reader.read(plan, plan.messages, token_ids=[1, 2]).ends == [None]
    assert len(caplog.records) == 1
    assert "the token source failed" in caplog.text


def test_threads_and_tasks_share_a_reader(tokenizer, reader):
    plans = [planned([body("rain"), body(f"wind {number}")]) for number in range(8)]
    found = {}

    def read(number):
        found[number] = reader.read(plans[number], plans[number].messages)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def together():
        return await asyncio.gather(*(asyncio.to_thread(reader.read, plan, plan.messages) for plan in plans))

    assert asyncio.run(together()) == [found[number] for number in range(8)]
    for plan, number in zip(plans, range(8), strict=True):
        check(tokenizer, plan, plan.messages, found[number])
