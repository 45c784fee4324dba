"""The figures of a chat's answers in LangChain's custom events."""

import asyncio

import pytest

from contextpilot_core import ReuseEngine
from tests.conftest import require

require("langchain_core")

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler  # noqa: E402
from langchain_core.messages import AIMessage  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_chat  # noqa: E402
from contextpilot_integrations.langchain.chat.events import TURN_EVENT  # noqa: E402
from tests.integrations.langchain_chats import HOWS, asking  # noqa: E402
from tests.integrations.langchain_fakes import Lists, Recorder, text_of  # noqa: E402


class Listener(BaseCallbackHandler):
    raise_error = True

    def __init__(self):
        self.events, self.runs = [], []

    def on_custom_event(self, name, data, *, run_id, **kwargs):
        assert name == TURN_EVENT
        self.events.append(data)
        self.runs.append(run_id)


class AsyncListener(AsyncCallbackHandler):
    def __init__(self):
        self.events = []

    async def on_custom_event(self, name, data, **kwargs):
        await asyncio.sleep(0)
        self.events.append(data)


def reporting(cached=None):
    """A model that reports usage, as LangChain's integrations do."""
    details = {"input_token_details": {"cache_read": cached}} if cached is not None else {}
    usage = {"input_tokens": 200, "output_tokens": 1, "total_tokens": 201, **details}
    return Recorder(answer=lambda messages: AIMessage("ok", usage_metadata=usage))


@pytest.mark.parametrize("how", HOWS)
def test_every_answer_tells_its_figures(how):
    engine, listener = ReuseEngine(), Listener()
    ask = asking(create_contextpilot_chat(Lists(), reporting(80), engine), how)
    for name in ("A", "B"):
        ask(f"{name} what?", {"callbacks": [listener]}, session_id="u")
    first, second = listener.events
    stats = engine.stats()
    reports = "stream" not in how  # the recorder's stream has no usage
    assert (first["predicted"], first["reported"]) == ((0, 80) if reports else (None, None))
    assert second["prompt_tokens"] == (200 if reports else None)
    assert second["hit_rate"] == (0.4 if reports else None)
    assert (stats.compared, stats.unreported) == ((2, 0) if reports else (0, 2))
    assert (second["drift"], second["live_contexts"], second["evictions"]) == (
        stats.drift,
        stats.live_requests,
        stats.evictions,
    )
    assert second["request_id"] != first["request_id"]
    assert second["plan_seconds"] > 0
    assert not [data for data in listener.events if text_of("D1")[:20] in repr(data) or "what" in repr(data)]


def test_what_was_not_reported_is_unknown():
    listener = Listener()
    chat = create_contextpilot_chat(Lists(), reporting())
    chat.invoke("A what?", {"callbacks": [listener]})
    assert listener.events[0]["prompt_tokens"] == 200
    assert (listener.events[0]["reported"], listener.events[0]["hit_rate"]) == (None, None)


def test_an_asynchronous_handler_hears_it():
    listener = AsyncListener()
    chat = create_contextpilot_chat(Lists(), reporting(80))
    asyncio.run(chat.ainvoke("A what?", {"callbacks": [listener]}))
    assert [data["reported"] for data in listener.events] == [80]


def test_inside_another_run_it_belongs_to_the_chat():
    listener = Listener()
    chat = create_contextpilot_chat(Lists(), reporting(80))
    outer = RunnableLambda(lambda question, config: chat.invoke(question, config))
    outer.invoke("A what?", {"callbacks": [listener]})
    (outer | RunnableLambda(lambda message: message.content)).batch(["A what?", "B what?"], {"callbacks": [listener]})
    assert len(listener.events) == 3
    assert len(set(listener.runs)) == 3


def test_events_of_a_stream_hold_it():
    async def names():
        chat = create_contextpilot_chat(Lists(), reporting(80))
        events = [event async for event in chat.astream_events("A what?")]
        return [event["data"]["source"] for event in events if event["event"] == "on_custom_event"]

    assert asyncio.run(names()) == ["estimate"]


def test_nobody_has_to_listen():
    assert create_contextpilot_chat(Lists(), reporting(80)).invoke("A what?").content == "ok"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("error", [ValueError("no"), KeyError(0), RecursionError()], ids=repr)
def test_a_handler_that_fails_loses_neither_the_answer_nor_its_turn(how, error, caplog):
    class Failing(BaseCallbackHandler):
        raise_error = True

        def on_custom_event(self, name, data, **kwargs):
            raise error

    chat = create_contextpilot_chat(Lists(), reporting(80))
    ask = asking(chat, how)
    assert ask("A what?", {"callbacks": [Failing()]}, session_id="u").strip() == "ok"
    assert len(chat.history("u")) == 2
    assert f"telling the figures of a turn failed ({type(error).__name__})" in caplog.text
