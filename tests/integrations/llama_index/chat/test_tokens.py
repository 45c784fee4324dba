"""The chat engine in front of a server that tells what it caches, per tenant: the real `OpenAILike`."""

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_integrations.serving.chat.tenants import Tenants
from tests.conftest import require

require("llama_index.core")
require("llama_index.llms.openai_like")

from llama_index.llms.openai_like import OpenAILike  # noqa: E402

from tests.integrations.caching_chat import SIZE, Broken, CachingChat, Characters  # noqa: E402
from tests.integrations.chat_server import chat_server  # noqa: E402
from tests.integrations.llama_index_chats import WAYS, Chat  # noqa: E402
from tests.integrations.llama_index_fakes import D1, D2, D3, D4, D5, Recorder  # noqa: E402

TENANTS = Tenants("a key of sixteen bytes")
TABLE = {"q1": [D1, D2], "q2": [D3, D4], "q3": [D5, D2, D1]}


@pytest.fixture
def server():
    with chat_server() as running:
        running.script = [CachingChat()]
        yield running


@pytest.fixture
def caching(server):
    return server.script[0]


@pytest.fixture
def asked():
    """Ask one of the four ways; the loops are closed at the end."""
    made = []

    def ask(way, question, **options):
        made.append(Chat(way, TABLE, **options))
        return made[-1](question)

    yield ask
    for chat in made:
        if chat.loop:
            chat.loop.close()


def model(server, **options):
    extra = {"stream_options": {"include_usage": True}, **options}
    return OpenAILike(
        model="m", api_base=server.base_url, api_key="-", is_chat_model=True, max_retries=0, additional_kwargs=extra
    )


def engine_of(caching, **options):
    return ReuseEngine(EngineConfig(kv_block=SIZE, note="none", **options), token_counter=len, mirror=caching.mirror)


@pytest.mark.parametrize("way", WAYS)
def test_plans_rely_on_what_is_cached(server, caching, asked, way):
    """The estimate holds one document alone, so it forgets the first question before the third."""
    engine, source = engine_of(caching, cache_tokens=len(D1)), Characters()
    llm = model(server, extra_body={"chat_template_kwargs": {"deep": True}})
    for question in ("q1 what?", "q2 what?", "q3 what?"):
        asked(way, question, llm=llm, engine=engine, tokens=source, system_prompt="Be brief.")
    stats = engine.stats()
    assert stats.source == "events"
    assert (stats.compared, stats.drift) == (3, 0)
    assert stats.predicted_tokens == stats.reported_tokens == sum(caching.reported)
    assert caching.reported[2] > len(D1) + len(D2)
    assert len(source.asked) == 3
    assert caching.bodies[0]["chat_template_kwargs"] == {"deep": True}


@pytest.mark.parametrize("way", WAYS)
def test_turns_of_one_chat_are_predicted(server, caching, way):
    engine = engine_of(caching)
    chat = Chat(way, TABLE, llm=model(server), engine=engine, tokens=Characters())
    for question in ("q1 what?", "q3 and?", "q1 again?"):
        chat(question)
    if chat.loop:
        chat.loop.close()
    stats = engine.stats()
    assert (stats.source, stats.compared, stats.drift) == ("events", 3, 0)
    assert stats.predicted_tokens == sum(caching.reported) > 2 * len(D1)


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_fails_fails_no_request(server, caching, asked, way, caplog):
    engine = engine_of(caching)
    for question in ("q1 what?", "q3 what?"):
        assert asked(way, question, llm=model(server), engine=engine, tokens=Broken())[1] == "ok"
    assert engine.stats().compared == 2
    assert "the token source failed (RuntimeError)" in caplog.text
    assert D1[:20] not in caplog.text


def test_nobody_asks_for_tokens_without_events_or_without_messages(server, caching, asked):
    source = Characters()
    asked("chat", "q1 what?", llm=model(server), engine=ReuseEngine(), tokens=source)
    asked("chat", "q1 what?", llm=Recorder(chat_model=False), engine=engine_of(caching), tokens=source)
    assert not source.asked


@pytest.mark.parametrize("way", WAYS)
def test_tenants_find_their_own_blocks_only(server, caching, asked, way):
    engine = engine_of(caching)
    llm = model(server, cache_salt="guessed", extra_body={"cache_salt": "guessed", "top_k": 3})
    for name in ("a", "b", "a", "b"):
        asked(way, "q1 what?", llm=llm, engine=engine, namespace=name, tenants=TENANTS, tokens=Characters())
    assert [body["cache_salt"] for body in caching.bodies] == [TENANTS.cache_salt(name) for name in "abab"]
    assert all(body["top_k"] == 3 for body in caching.bodies)
    assert caching.reported[:2] == [0, 0]
    assert min(caching.reported[2:]) > 2 * len(D1)
    stats = engine.stats()
    assert (stats.source, stats.drift, stats.predicted_tokens) == ("events", 0, sum(caching.reported))
    assert llm.additional_kwargs["cache_salt"] == "guessed"  # the caller's own is as it was
