"""What the clients send besides plain chats: text prompts, questions with parts, salts, and all other options."""

import asyncio

import pytest

from contextpilot_core.errors import ConfigError, RequestError, RequestTypeError
from contextpilot_integrations.serving.chat.tenants import Tenants
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.session import session
from tests.conftest import require
from tests.integrations.chat_server import breaking_off, chat_server, completing, good, refusing
from tests.integrations.serving.client.test_client import MILK, SALT, TEA, Face, document

openai = require("openai")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT = {"type": "text", "text": "What is in this picture?"}


@pytest.fixture
def server():
    with chat_server() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def client(request, server):
    loop = asyncio.new_event_loop()
    yield Both(server, asynchronous=request.param == "async", loop=loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Both(Face):
    def complete(self, *args, **options):
        answer = self.client.complete(*args, **options)
        return self.loop.run_until_complete(answer) if self.asynchronous else answer

    def stream_completion(self, *args, **options):
        async def read(stream):
            return [piece async for piece in stream]

        stream = self.client.stream_completion(*args, **options)
        return (self.loop.run_until_complete(read(stream)) if self.asynchronous else list(stream)), stream


# --- text prompts --------------------------------------------------------------------------------------------------


def test_a_text_prompt_is_instructions_documents_and_question(client, server):
    server.script = [completing("It", " is.")]
    result = client.complete([TEA, MILK], "Is it good? Answer:", instructions="Be brief.", max_tokens=4, logit_bias={})
    assert (result.answer, result.finish_reason) == ("It is.", "stop")
    assert result.usage.cached_tokens == 64
    assert result.ttft_ms > 0
    assert result.prompt == f"Be brief.\n\n{result.plan.text}\n\nIs it good? Answer:"
    expected = {"model": "m", "prompt": result.prompt, "max_tokens": 4, "logit_bias": {}, "stream": True}
    assert server.requests == [{**expected, "stream_options": {"include_usage": True}}]
    assert client.engine.stats().committed == 1


def test_text_prompts_share_prefixes(client, server):
    server.script = [completing("Yes")]
    client.complete([TEA, MILK], "one", instructions="Be brief.")
    result = client.complete([SALT, MILK, TEA], "two", instructions="Be brief.")
    assert result.plan.order == (2, 1, 0)
    first, second = (request["prompt"] for request in server.requests)
    assert second.startswith(first.removesuffix("\n\none"))


def test_a_text_prompt_is_streamed(client, server):
    server.script = [completing("It", " is", ".")]
    pieces, stream = client.stream_completion([TEA], "?")
    assert pieces == ["It", " is", "."]
    assert stream.result.answer == "It is."


def test_a_text_prompt_belongs_to_no_session(client, server):
    server.script = [completing("Yes")]
    with session("u"):
        client.complete([TEA], "one")
    assert len(client.client._chats.sessions) == 0


def test_a_broken_text_prompt_leaves_nothing(client, server):
    server.script = [refusing(500), breaking_off()]
    with pytest.raises(openai.InternalServerError):
        client.complete([TEA], "?")
    assert client.engine.stats().abandoned == 1
    with pytest.raises(Exception, match="(?i)connection|peer|incomplete|read"):
        client.complete([TEA], "?")
    assert (client.engine.stats().committed, client.engine.stats().in_flight) == (1, 0)


@pytest.mark.parametrize("option", ["prompt", "messages", "stream"])
def test_a_text_prompt_is_made_here(server, option):
    with pytest.raises(RequestError, match=f"{option} cannot be given"):
        Face(server).client.complete([TEA], "?", **{option: "x"})
    assert server.requests == []


@pytest.mark.parametrize("option", ["extra_body", "stream_options"])
@pytest.mark.parametrize("tenants", [None, Tenants("a key for the tests")])
def test_nested_options_are_absent_or_a_dict(server, option, tenants):
    face = Face(server, tenants=tenants)
    face([TEA], "?", **{option: None})
    for wrong in ([], "x", 5):
        with pytest.raises(RequestTypeError, match=f"{option} is a {type(wrong).__name__}; it must be a dict"):
            face([TEA], "?", **{option: wrong})
        with pytest.raises(RequestTypeError, match=option):
            face.client.complete([TEA], "?", **{option: wrong})
    assert len(server.requests) == 1
    assert server.requests[0]["stream_options"] == {"include_usage": True}


# --- questions with parts ------------------------------------------------------------------------------------------


def test_a_question_with_an_image_is_passed_on_unread(client, server):
    result = client([TEA, MILK], [TEXT, IMAGE], instructions="Be brief.")
    system, user = server.requests[0]["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user == {"role": "user", "content": [{"type": "text", "text": result.plan.text}, TEXT, IMAGE]}
    assert tuple(server.requests[0]["messages"]) == result.prompt
    assert result.plan.request.query == ""


def test_an_image_without_documents_is_the_message(client, server):
    result = client([], [IMAGE])
    assert server.requests[0]["messages"] == [{"role": "user", "content": [IMAGE]}]
    assert result.prompt == ({"role": "user", "content": [IMAGE]},)


def test_documents_beside_an_image_are_known_to_later_turns(client, server):
    parts = [TEXT, {**IMAGE, "image_url": dict(IMAGE["image_url"])}]
    first = client([TEA, MILK], parts, session_id="u")
    parts[1]["image_url"]["url"] = "changed later"
    second = client([MILK, SALT], "And salt?", session_id="u")
    third = client([SALT], [IMAGE], session_id="u")
    assert [hint.label for hint in second.plan.hints] == [2]
    assert "[Doc 3]" in second.plan.text
    assert third.plan.text == "See [Doc 3] above."
    assert server.requests[1]["messages"][:2] == [first.prompt[0], first.message]
    assert server.requests[2]["messages"][:4] == [*second.prompt, second.message]
    assert client.client.history("u") == (*third.prompt, third.message)
    assert server.requests[1]["messages"][0]["content"][2] == IMAGE


def test_text_parts_hide_no_block_and_move_no_label(client):
    """A part is never read: a document pasted there is no context, and a label there is no label."""
    client([TEA], [{"type": "text", "text": f"[Doc 7]\n{MILK}"}], session_id="u")
    result = client([MILK, SALT], "?", session_id="u")
    assert result.plan.hints == ()
    assert result.plan.labels == (2, 3)


def test_a_full_window_keeps_the_parts_of_the_turns_that_stay(server):
    face = Face(server, max_context_tokens=200, token_counter=lambda text: len(text.split()))
    server.script = [good(usage=None)]
    for name in "abcd":
        result = face([document(name)], [{"type": "text", "text": f"turn {name}"}, IMAGE], session_id="u")
    assert len(result.prompt) < 7
    for turn, message in zip("abcd"[-(len(result.prompt) + 1) // 2 :], result.prompt[::2], strict=True):
        assert message["content"][1:] == [{"type": "text", "text": f"turn {turn}"}, IMAGE]
        assert document(turn) in message["content"][0]["text"]


@pytest.mark.parametrize("part", ["text", {"text": "no type"}, {"type": 1}, None])
def test_parts_are_in_openai_form(client, server, part):
    with pytest.raises(RequestTypeError, match=r"query\[1\] is a .*; a question is a str, or a list of parts"):
        client([TEA], [TEXT, part])
    assert server.requests == []


# --- tenants -------------------------------------------------------------------------------------------------------


def test_every_request_of_a_tenant_has_its_salt(server):
    tenants = Tenants("a key of more than sixteen bytes")
    face = Both(server, tenants=tenants)
    face([TEA], "?", namespace="a", extra_body={"cache_salt": "stolen", "top_k": 1})
    face([TEA], "?", namespace="b")
    face([TEA], "?")
    server.script = [completing("Yes")]
    face.complete([TEA], "?", namespace="a")
    names = ["a", "b", "default", "a"]
    assert [request["cache_salt"] for request in server.requests] == [tenants.cache_salt(name) for name in names]
    assert server.requests[0]["top_k"] == 1


def test_a_salt_at_the_top_is_replaced_too(server):
    class Chat:  # a client of one's own, which passes on what it is given
        class chat:
            class completions:
                @staticmethod
                def create(**arguments):
                    asked.append(arguments)
                    return iter(())

    asked = []
    tenants = Tenants("a key of more than sixteen bytes")
    ContextPilotClient(Chat, model="m", tenants=tenants).chat([TEA], "?", namespace="a", cache_salt="stolen")
    assert "cache_salt" not in asked[0]
    assert asked[0]["extra_body"] == {"cache_salt": tenants.cache_salt("a")}


def test_tenants_have_an_index_and_a_history_of_their_own(server):
    """Case V8: neither the other's documents nor its conversation show in what a tenant is sent."""
    face = Both(server, tenants=Tenants("a key of more than sixteen bytes"))
    face([TEA, MILK], "?", namespace="a", session_id="u")
    other = face([SALT, MILK, TEA], "?", namespace="b", session_id="u")
    assert (other.plan.order, other.plan.expected_reused_tokens, len(other.plan.messages)) == ((0, 1, 2), 0, 1)
    assert face([SALT, MILK, TEA], "?", namespace="a").plan.order == (2, 1, 0)


def test_without_tenants_extra_body_is_the_callers(server):
    face = Face(server)
    face([TEA], "?", namespace="a", extra_body={"cache_salt": "mine"})
    face([TEA], "?", namespace="b")
    assert [request.get("cache_salt") for request in server.requests] == ["mine", None]


def test_tenants_are_tenants(server):
    with pytest.raises(ConfigError, match="tenants is a str; it must be a Tenants"):
        Face(server, tenants="a key of more than sixteen bytes")
