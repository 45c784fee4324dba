"""LlamaIndex pipelines against the embedded llama.cpp: cached tokens as the server reports them."""

import itertools

import pytest

from contextpilot_integrations.serving.chat.usage import read_usage
from tests.conftest import require, require_local_model

require("llama_index.core")
require("llama_index.llms.openai_like")
openai = require("openai")
require_local_model()

from llama_index.core.instrumentation.event_handlers import BaseEventHandler  # noqa: E402
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent  # noqa: E402
from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: E402
from llama_index.core.response_synthesizers import get_response_synthesizer  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402
from llama_index_instrumentation import get_dispatcher  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotChatEngine, ContextPilotPostprocessor  # noqa: E402
from contextpilot_integrations.serving.local.engine import LocalEngine  # noqa: E402
from tests.integrations.llama_index_fakes import TABLE, TableRetriever  # noqa: E402

SHORT = {key: [text[:130] for text in found] for key, found in TABLE.items()}


class Usages(BaseEventHandler):
    """What the server said about every answer, from ``response.raw``."""

    found: list = []

    @classmethod
    def class_name(cls):
        return "Usages"

    def handle(self, event, **options):
        if isinstance(event, LLMChatEndEvent):
            self.found.append(read_usage(event.response.raw))


@pytest.fixture(scope="module")
def server():
    with LocalEngine(threads=1, slots=1, cache_ram_mib=0) as running:
        yield running


@pytest.fixture
def llm(server):
    server.clear()
    return OpenAILike(
        model=server.model,
        api_base=server.base_url,
        api_key="local",
        is_chat_model=True,
        context_window=8192,
        max_tokens=4,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )


@pytest.fixture
def usages():
    handler = Usages(found=[])
    root = get_dispatcher()
    root.add_event_handler(handler)
    yield handler.found
    root.event_handlers.remove(handler)


def test_a_query_engine_hits_the_prefix_cache(server, llm, usages):
    cached = {}
    for name, hooks in (("plain", []), ("ours", [ContextPilotPostprocessor()])):
        server.clear()
        usages.clear()
        engine = RetrieverQueryEngine(
            TableRetriever(SHORT), get_response_synthesizer(llm=llm), node_postprocessors=hooks
        )
        for question in ("qA what is said?", "qB what is said?"):
            engine.query(question)
        cached[name] = usages[-1].cached_tokens
        print(f"query engine, {name}: {usages[-1]}")
    assert cached["plain"] < 150  # the preamble
    assert cached["ours"] > cached["plain"] + 180  # and three documents


@pytest.mark.parametrize("streaming", [False, True], ids=["chat", "stream_chat"])
def test_a_chat_reuses_the_whole_prompt_before(streaming, llm, usages):
    if streaming:
        llm.additional_kwargs = {"stream_options": {"include_usage": True}}
    chats = ContextPilotChatEngine.from_defaults(TableRetriever(SHORT), llm=llm, system_prompt="Answer briefly.")
    for question in ("qA what is said?", "qB what is said?", "qA and again?"):
        if streaming:
            "".join(chats.stream_chat(question).response_gen)
        else:
            chats.chat(question)
    print(*usages, sep="\n")
    assert chats.last_usage == usages[-1]
    for before, after in itertools.pairwise(usages):
        assert after.cached_tokens >= before.prompt_tokens - 8  # all but the head of the answer's own message
    assert usages[-1].prompt_tokens - usages[-1].cached_tokens < 120  # hints and the question, no document
