"""The figures of a chat's answers in LlamaIndex's instrumentation."""

import pytest

from contextpilot_core import ReuseEngine
from tests.conftest import require

require("llama_index.core")
require("llama_index.llms.openai_like")

from llama_index.core.instrumentation.event_handlers import BaseEventHandler  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402
from llama_index_instrumentation import get_dispatcher  # noqa: E402
from llama_index_instrumentation.dispatcher import instrument_tags  # noqa: E402

from contextpilot_integrations.llama_index import TurnEvent  # noqa: E402
from tests.integrations.chat_server import chat_server, reporting  # noqa: E402
from tests.integrations.llama_index_chats import WAYS, Chat  # noqa: E402
from tests.integrations.llama_index_fakes import D1, Recorder  # noqa: E402

USAGE = {"usage": {"prompt_tokens": 200, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 80}}}


@pytest.fixture
def heard():
    events = []

    class Handler(BaseEventHandler):
        @classmethod
        def class_name(cls):
            return "Handler"

        def handle(self, event, **kwargs):
            if isinstance(event, TurnEvent):
                events.append(event)

    dispatcher, handler = get_dispatcher(), Handler()
    dispatcher.add_event_handler(handler)
    yield events
    dispatcher.event_handlers.remove(handler)


@pytest.mark.parametrize("way", WAYS)
def test_every_answer_tells_its_figures(way, heard):
    chat = Chat(way, llm=Recorder(raw=USAGE), engine=ReuseEngine())
    with instrument_tags({"session_id": "u"}):
        chat("qA what?")
    chat("qB what?")
    if chat.loop:
        chat.loop.close()
    first, second = heard
    stats = chat.engine.stats()
    reports = "stream" not in way  # the recorder's stream has no usage
    assert (first.predicted, first.reported) == ((0, 80) if reports else (None, None))
    assert (second.prompt_tokens, second.hit_rate) == ((200, 0.4) if reports else (None, None))
    assert (stats.compared, stats.unreported) == ((2, 0) if reports else (0, 2))
    assert (second.drift, second.live_contexts, second.evictions) == (stats.drift, stats.live_requests, stats.evictions)
    assert second.plan_seconds > 0
    assert first.tags == {"session_id": "u"}
    told = second.model_dump()
    assert told["class_name"] == "ContextPilotTurnEvent"
    assert D1[:20] not in repr(told)
    assert "what" not in repr(told)


def test_what_was_not_reported_is_unknown(heard):
    Chat(llm=Recorder(raw={"usage": {"prompt_tokens": 200, "prompt_tokens_details": None}}))("qA what?")
    assert (heard[0].prompt_tokens, heard[0].reported, heard[0].hit_rate) == (200, None, None)


@pytest.mark.parametrize("way", ["stream_chat", "astream_chat"])
@pytest.mark.parametrize("last", [[], [None]], ids=["the last piece, too", "all but the last"])
def test_a_server_that_reports_with_every_piece_is_counted_once(way, last, heard):
    used = {"prompt_tokens": 200, "prompt_tokens_details": {"cached_tokens": 150}}
    with chat_server() as server:
        server.script = [
            reporting(*[{**used, "completion_tokens": n, "total_tokens": 200 + n} for n in (1, 2, 3)], *last)
        ]
        extra = {"stream_options": {"include_usage": True}}
        llm = OpenAILike(
            model="m", api_base=server.base_url, api_key="-", is_chat_model=True, max_retries=0, additional_kwargs=extra
        )
        chat = Chat(way, llm=llm, engine=ReuseEngine())
        for question in ("qA what?", "qB what?"):
            chat(question)
    if chat.loop:
        chat.loop.close()
    assert [(event.prompt_tokens, event.reported, event.hit_rate) for event in heard] == [(200, 150, 0.75)] * 2
    assert chat.chats.last_usage.completion_tokens == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_fails_loses_neither_the_answer_nor_its_turn(way):
    class Failing(BaseEventHandler):
        @classmethod
        def class_name(cls):
            return "Failing"

        def handle(self, event, **kwargs):
            if isinstance(event, TurnEvent):
                raise ValueError("no")

    dispatcher, handler = get_dispatcher(), Failing()
    dispatcher.add_event_handler(handler)
    try:
        chat = Chat(way, llm=Recorder(raw=USAGE), engine=ReuseEngine())
        chat("qA what?")
    finally:
        dispatcher.event_handlers.remove(handler)
    if chat.loop:
        chat.loop.close()
    assert len(chat.chats.chat_history) == 2
