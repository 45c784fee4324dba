"""Nonsense in an argument is refused where it is given, with the argument's name, in all that an application makes."""

import pytest

from contextpilot_core import ContextPilotError, KVMirror, ReuseEngine
from contextpilot_integrations import langchain, llama_index, serving
from contextpilot_integrations.reorder import OrderMemory, OrderNotes
from contextpilot_integrations.retrieval import Bm25Index
from tests.conftest import require

pydantic = require("pydantic")
openai = require("openai")
for package in ("langchain.agents", "llama_index.core", "zmq", "msgspec", "rank_bm25", "prometheus_client"):
    require(package)

from llama_index.core.llms import MockLLM  # noqa: E402

from tests.integrations.langchain_fakes import Lists, Recorder  # noqa: E402
from tests.integrations.llama_index_fakes import TableRetriever  # noqa: E402

ONE = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="-")
OTHER = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="-")
NONSENSE = [5, True, -1, 0, "x", float("nan"), float("inf"), 10**400, 10**5000, [], {}, [5], object(), None, b"x"]

NUMBERS = [5, float("inf")]
TEXT = ["x"]
LIMITS = {
    "max_context_tokens": [5, None],
    "max_sessions": [5],
    "token_counter": [],
    "tenants": [None],
    "tokens": [None],
}
CLIENT = {**LIMITS, "clock": [], "engine": [None], "model": TEXT}
ROUTER = {
    **LIMITS,
    "clock": [],
    "model": TEXT,
    "clients": [],
    "engines": [None],
    "max_imbalance": [5],
    "retry_seconds": NUMBERS,
}
NAMES = {"session_id": [None, *TEXT, b"x"], "namespace": [*TEXT, b"x"]}
HOOK = {**NAMES, "engine": [], "k": [5, None], "scheduler": [None]}


def client(**given):
    return serving.ContextPilotClient(given.pop("client", ONE), **{"model": "m", **given})


def async_client(**given):
    return serving.AsyncContextPilotClient(given.pop("client", OTHER), **{"model": "m", **given})


def router(**given):
    return serving.ReplicaRouter(given.pop("clients", [ONE, ONE]), **{"model": "m", **given})


def async_router(**given):
    return serving.AsyncReplicaRouter(given.pop("clients", [OTHER]), **{"model": "m", **given})


def subscriber(**given):
    given = {"endpoint": "tcp://127.0.0.1:9", "mirror": KVMirror(), **given}
    with serving.KVEventSubscriber(given.pop("endpoint"), given.pop("mirror"), **given):
        pass


def chat(**given):
    return langchain.create_contextpilot_chat(given.pop("retriever", Lists()), given.pop("llm", Recorder()), **given)


def chat_engine(**given):
    make = llama_index.ContextPilotChatEngine.from_defaults
    return make(given.pop("retriever", TableRetriever()), **{"llm": MockLLM(), **given})


MAKERS = {
    "client": (client, {**CLIENT, "client": []}),
    "async client": (async_client, {**CLIENT, "max_wait_ms": [5, 0, None], "client": []}),
    "router": (router, ROUTER),
    "async router": (async_router, {**ROUTER, "max_wait_ms": [5, 0, None]}),
    "a client of a router": (lambda one: router(clients=[ONE, one]), {"one": []}),
    "an engine of a router": (lambda one: router(engines=[ReuseEngine(), one]), {"one": []}),
    "router at": (lambda **given: serving.ReplicaRouter.at(**given, model="m"), {"base_urls": []}),
    "router with": (
        lambda **given: serving.ReplicaRouter.at(["http://127.0.0.1:9/v1"], **given, model="m"),
        {"client_options": [None, {}]},
    ),
    "tenants": (serving.Tenants, {"key": []}),
    "HuggingFaceTokens": (serving.HuggingFaceTokens, {"tokenizer": []}),
    "ServerTokens": (
        lambda **given: serving.ServerTokens(**{"base_url": "http://x", **given}),
        {"base_url": TEXT, "model": [None, *TEXT], "api_key": [None, *TEXT], "timeout": NUMBERS, "http_client": [None]},
    ),
    "PromptTokenizer": (
        lambda **given: serving.PromptTokenizer(**{"source": serving.ServerTokens("http://x"), **given}),
        {"source": [], "max_pieces": [5]},
    ),
    "subscriber": (
        subscriber,
        {
            "endpoint": [],
            "mirror": [],
            "replay_endpoint": [None],
            "rank": [5, 0],
            "topic": TEXT,
            "replay_timeout": NUMBERS,
        },
    ),
    "subscriber that binds": (lambda bind: subscriber(endpoint="tcp://127.0.0.1:*", bind=bind), {"bind": [True]}),
    "metrics": (lambda **given: serving.EngineMetrics(**given), {"namespaces": [[], {}]}),
    "meter": (lambda **given: serving.EngineMetrics().meter(**given), {"name": TEXT}),
    "LangChain chat": (
        chat,
        {
            **LIMITS,
            "retriever": [],
            "llm": [],
            "engine": [None],
            "history": [None],
            "instructions": TEXT,
            "condense_question": [None],
            "document_prompt": [None],
            "session_id": [None, *TEXT],
            "namespace": TEXT,
        },
    ),
    "LangChain retriever": (
        lambda **given: langchain.ContextPilotRetriever(**{"base_retriever": Lists(), **given}),
        {**HOOK, "base_retriever": [], "orders": []},
    ),
    "LangChain compressor": (langchain.ContextPilotCompressor, {**HOOK, "orders": []}),
    "LangChain step": (
        lambda **given: langchain.reorder_documents(given.pop("engine", ReuseEngine()), **given),
        {**HOOK, "session_id": [None, *TEXT], "namespace": TEXT},
    ),
    "middleware": (langchain.ContextPilotMiddleware, {"config": [None], "engine": [None], "token_counter": []}),
    "retriever tool": (
        lambda **given: langchain.create_contextpilot_retriever_tool(
            **{"retriever": Lists(), "name": "n", "description": "d", **given}
        ),
        {"retriever": [], "name": TEXT, "description": TEXT, "document_prompt": [None], "document_separator": TEXT},
    ),
    "prompt": (langchain.create_contextpilot_prompt, {"instructions": TEXT}),
    "chat engine": (
        chat_engine,
        {
            "retriever": [],
            "engine": [None],
            "memory": [None],
            "prefix_messages": [[]],
            "node_postprocessors": [[]],
            "context_template": [None],
            "condense_question": [None],
            "max_context_tokens": [5, None],
            "session_id": [None, *TEXT],
            "namespace": TEXT,
            "tenants": [None],
            "tokens": [None],
            "callback_manager": [None],
            "system_prompt": [None, *TEXT],
            "chat_history": [None, []],
        },
    ),
    "postprocessor": (llama_index.ContextPilotPostprocessor, {**NAMES, "engine": []}),
    "orders": (OrderMemory, {"max_sessions": [5]}),
    "notes": (OrderNotes, {"max_notes": [5]}),
    "BM25": (
        lambda **given: Bm25Index(**{"documents": ["tea"], **given}),
        {"documents": [[], {}], "tokenize": [], "k1": [5, 0], "b": [0]},
    ),
}
CASES = [(maker, name) for maker, (_, rules) in MAKERS.items() for name in rules]


@pytest.mark.parametrize(("maker", "name"), CASES)
def test_nonsense_is_refused_and_nothing_else(maker, name):
    make, rules = MAKERS[maker]
    for value in NONSENSE:
        if any(type(value) is type(right) and value == right for right in rules[name]):
            make(**{name: value})
            continue
        with pytest.raises((ContextPilotError, pydantic.ValidationError)) as caught:
            make(**{name: value})
        assert str(caught.value)
