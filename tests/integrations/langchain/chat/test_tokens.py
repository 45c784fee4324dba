"""LangChain's chat in front of a server that tells what it caches, per tenant: the real `ChatOpenAI`."""

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_integrations.serving.chat.tenants import Tenants
from tests.conftest import require

require("langchain_core")
require("langchain_openai")

from langchain_openai import ChatOpenAI  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_chat  # noqa: E402
from tests.integrations.caching_chat import SIZE, Broken, CachingChat, Characters  # noqa: E402
from tests.integrations.chat_server import chat_server  # noqa: E402
from tests.integrations.langchain_chats import HOWS, asking  # noqa: E402
from tests.integrations.langchain_fakes import Lists, text_of  # noqa: E402

TENANTS = Tenants("a key of sixteen bytes")
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def server():
    with chat_server() as running:
        running.script = [CachingChat()]
        yield running


@pytest.fixture
def caching(server):
    return server.script[0]


def model(server, **options):
    return ChatOpenAI(base_url=server.base_url, model="m", api_key="-", stream_usage=True, max_retries=0, **options)


def engine_of(caching, **options):
    return ReuseEngine(EngineConfig(kv_block=SIZE, note="none", **options), token_counter=len, mirror=caching.mirror)


@pytest.mark.parametrize("how", HOWS)
def test_plans_rely_on_what_is_cached(server, caching, how):
    """The estimate holds one document alone, so it forgets the first question before the third."""
    engine, source = engine_of(caching, cache_tokens=len(text_of("D1"))), Characters()
    llm = model(server).bind_tools([SEARCH]).bind(extra_body={"chat_template_kwargs": {"deep": True}})
    ask = asking(create_contextpilot_chat(Lists(), llm, engine, instructions="Be brief.", tokens=source), how)
    for question in ("D1,D2 what?", "D3,D4 what?", "D5,D2,D1 what?"):
        assert ask(question) == "ok"
    ask("D6 what?", session_id="u")
    ask("D7,D6 what?", session_id="u")
    stats = engine.stats()
    assert stats.source == "events"
    assert (stats.compared, stats.drift) == (5, 0)
    assert stats.predicted_tokens == stats.reported_tokens == sum(caching.reported)
    assert caching.reported[2] > len(text_of("D1")) + len(text_of("D2"))
    assert len(source.asked) == 5
    assert caching.bodies[0]["tools"] == [SEARCH]


@pytest.mark.parametrize("how", HOWS)
def test_a_source_that_fails_fails_no_request(server, caching, how, caplog):
    engine = engine_of(caching)
    ask = asking(create_contextpilot_chat(Lists(), model(server), engine, tokens=Broken()), how)
    for question in ("D1,D2 what?", "D2,D1 what?"):
        assert ask(question) == "ok"
    assert engine.stats().compared == 2
    assert "the token source failed (RuntimeError)" in caplog.text
    assert text_of("D1")[:20] not in caplog.text


def test_nobody_asks_for_tokens_without_events(server):
    source = Characters()
    asking(create_contextpilot_chat(Lists(), model(server), ReuseEngine(), tokens=source), "invoke")("D1 what?")
    assert not source.asked


@pytest.mark.parametrize("how", HOWS)
def test_tenants_find_their_own_blocks_only(server, caching, how):
    engine = engine_of(caching)
    llm = model(server, extra_body={"cache_salt": "guessed", "min_p": 0.1})
    chats = {
        name: create_contextpilot_chat(Lists(), llm, engine, namespace=name, tenants=TENANTS, tokens=Characters())
        for name in ("a", "b")
    }
    for name in ("a", "b", "a", "b"):
        asking(chats[name], how)("D1,D2 what?", extra_body={"cache_salt": "mine", "top_k": 3})
    assert [body["cache_salt"] for body in caching.bodies] == [TENANTS.cache_salt(name) for name in "abab"]
    assert all(body["top_k"] == 3 for body in caching.bodies)
    assert caching.reported[:2] == [0, 0]
    assert min(caching.reported[2:]) > 2 * len(text_of("D1"))
    stats = engine.stats()
    assert (stats.source, stats.drift, stats.predicted_tokens) == ("events", 0, sum(caching.reported))
