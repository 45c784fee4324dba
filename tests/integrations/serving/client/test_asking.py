"""What every client can be asked: chats, streams, text prompts, histories."""

import pytest

from contextpilot_core import RequestError, RequestTypeError
from contextpilot_integrations.session import session
from tests.integrations.chat_server import breaking_off, completing, refusing
from tests.integrations.serving.client.faces import (
    MILK,
    SALT,
    TEA,
    TEXT,
    Face,
    openai,
    pieces_of,
)


def test_chat_returns_the_stream_when_asked(server):
    client = Face(server).client
    with client.chat([TEA], "?", stream=True) as stream:
        with pytest.raises(RequestError, match="read to its end"):
            _ = stream.result
        assert "".join(stream) == stream.result.answer == "Hello there"


def test_reset_forgets_one_session(chat):
    chat([TEA], "one", session_id="u")
    chat([TEA], "one", session_id="v")
    assert chat.client.reset("u") is True
    assert chat.client.reset("u") is False
    assert chat([TEA], "two", session_id="u").plan.hints == ()
    assert len(chat.client.history("v")) == 2


def test_a_text_prompt_is_instructions_documents_and_question(chat, server):
    server.script = [completing("It", " is.")]
    result = chat.complete([TEA, MILK], "Is it good? Answer:", instructions="Be brief.", max_tokens=4, logit_bias={})
    assert (result.answer, result.finish_reason) == ("It is.", "stop")
    assert result.usage.cached_tokens == 64
    assert result.ttft_ms > 0
    assert result.prompt == f"Be brief.\n\n{result.plan.text}\n\nIs it good? Answer:"
    expected = {"model": "m", "prompt": result.prompt, "max_tokens": 4, "logit_bias": {}, "stream": True}
    assert server.requests == [{**expected, "stream_options": {"include_usage": True}}]
    assert chat.engine.stats().committed == 1


def test_text_prompts_share_prefixes(chat, server):
    server.script = [completing("Yes")]
    chat.complete([TEA, MILK], "one", instructions="Be brief.")
    result = chat.complete([SALT, MILK, TEA], "two", instructions="Be brief.")
    assert result.plan.order == (2, 1, 0)
    first, second = (request["prompt"] for request in server.requests)
    assert second.startswith(first.removesuffix("\n\none"))


def test_a_text_prompt_is_streamed(chat, server):
    server.script = [completing("It", " is", ".")]
    pieces, stream = chat.stream_completion([TEA], "?")
    assert pieces == ["It", " is", "."]
    assert stream.result.answer == "It is."


def test_a_text_prompt_belongs_to_no_session(chat, server):
    server.script = [completing("Yes")]
    with session("u"):
        chat.complete([TEA], "one")
    assert len(chat.client._chats.sessions) == 0


def test_a_broken_text_prompt_leaves_nothing(chat, server):
    server.script = [refusing(500), breaking_off()]
    with pytest.raises(openai.InternalServerError):
        chat.complete([TEA], "?")
    assert chat.engine.stats().abandoned == 1
    with pytest.raises(Exception, match="(?i)connection|peer|incomplete|read"):
        chat.complete([TEA], "?")
    assert (chat.engine.stats().committed, chat.engine.stats().in_flight) == (1, 0)


def test_a_chat_that_is_streamed_is_the_stream(server):
    client = Face(server).client
    by_chat, by_stream = client.chat([TEA], "?", stream=True, top_p=0.5), client.stream([TEA], "?", top_p=0.5)
    assert type(by_chat) is type(by_stream)
    assert list(by_chat) == list(by_stream) == ["Hello", " there"]
    assert server.requests[0] == server.requests[1]


def test_a_chat_of_tasks_that_is_streamed_is_awaited_and_then_the_stream(server, loop):
    client = Face(server, asynchronous=True, loop=loop).client

    async def talk():
        by_chat, by_stream = await client.chat([TEA], "?", stream=True), client.stream([TEA], "?")
        assert type(by_chat) is type(by_stream)
        return await pieces_of(by_chat), await pieces_of(by_stream)

    assert loop.run_until_complete(talk()) == (["Hello", " there"], ["Hello", " there"])
    assert server.requests[0] == server.requests[1]


def test_an_answer_is_what_its_stream_adds_up_to(chat):
    whole, (pieces, stream) = chat([TEA], "?"), chat.stream([TEA], "?")
    assert whole.answer == stream.result.answer == "".join(pieces)
    assert (whole.message, whole.usage, whole.prompt) == (
        stream.result.message,
        stream.result.usage,
        stream.result.prompt,
    )


def test_a_wrong_request_is_refused_when_it_is_made_not_when_it_is_read(server):
    for face in (Face(server), Face(server, asynchronous=True)):
        for call in (face.client.chat, face.client.stream, face.client.complete, face.client.stream_completion):
            with pytest.raises(RequestError, match="prompt cannot be given"):
                call([TEA], "?", prompt="mine")
    assert server.requests == []


def test_history_and_last_plan_are_those_of_the_latest_answer(chat):
    assert chat.client.history("u") == ()
    assert chat.client.last_plan("u") is None
    first = chat([TEA], "one", session_id="u")
    assert chat.client.last_plan("u") is first.plan
    second = chat([MILK], "two", session_id="u")
    assert chat.client.last_plan("u") is second.plan
    assert chat.client.history("u") == (*second.prompt, second.message)
    assert chat.client.last_plan("u", namespace="other") is None


def test_reset_is_of_one_namespace(chat):
    chat([TEA], "one", session_id="u")
    assert chat.client.reset("u", namespace="other") is False
    assert len(chat.client.history("u")) == 2
    assert chat.client.reset("u") is True
    assert chat.client.last_plan("u") is None


def test_a_text_prompt_may_not_have_parts(chat, server):
    with pytest.raises(RequestTypeError, match="query"):
        chat.complete([TEA], [TEXT])
    assert server.requests == []
