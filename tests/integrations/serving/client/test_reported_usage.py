"""S11: streams without usage are unknown, not 0; averages skip them; repeated reports of one stream count once."""

import pytest

from tests.conftest import require
from tests.integrations.chat_server import chat_server


def reporting(*usages):
    """A stream whose chunks carry these usages, as servers with continuous statistics send them."""

    def behave(exchange):
        exchange.start()
        exchange.chunk({"role": "assistant", "content": None})
        for usage in usages:
            exchange.chunk({"content": "so "}, usage=usage)
        exchange.chunk({}, "stop")
        exchange.end()

    return behave


def usage_of(cached, completion=1):
    return {"prompt_tokens": 100, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": cached}}


@pytest.fixture
def ask():
    openai = require("openai")
    from contextpilot_integrations.serving.client.client import ContextPilotClient

    with chat_server() as server:
        client = ContextPilotClient(openai.OpenAI(base_url=server.base_url, api_key="-", max_retries=0), model="m")

        def asked(*behaviours):
            server.script = list(behaviours)
            results = [client.chat(["a document"], "?") for _ in behaviours]
            assert all(result.answer for result in results)
            return [result.usage for result in results]

        yield asked


def test_a_stream_without_a_usage_chunk_is_unknown(ask):
    (usage,) = ask(reporting(None, None))
    assert usage.cached_tokens is None
    assert usage.hit_rate is None


def test_a_usage_that_grows_with_every_chunk_counts_once(ask):
    (usage,) = ask(reporting(usage_of(96, 1), usage_of(96, 2), usage_of(96, 3)))
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (100, 96, 3)
    assert usage.hit_rate == 0.96
