"""What the calls take and refuse: blocks, questions with parts, options, namespaces and tenants."""

import pytest

from contextpilot_core import AnswerError, ConfigError, RequestError, RequestTypeError
from contextpilot_integrations.serving.chat.tenants import Tenants
from contextpilot_integrations.serving.client.calls import closing_stream
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.session import session
from tests.integrations.chat_server import completing, refusing
from tests.integrations.serving.client.faces import (
    MILK,
    SALT,
    TEA,
    TEXT,
    Face,
    openai,
    openai_client,
)


def test_options_pass_through_untouched(chat, server):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    extra = {"cache_salt": "s", "top_k": 1}
    chat([TEA], "?", tools=tools, temperature=0.5, extra_body=extra, model="other", stream_options={"x": 1})
    sent = server.requests[0]
    assert sent["tools"] == tools
    assert (sent["temperature"], sent["cache_salt"], sent["top_k"], sent["model"]) == (0.5, "s", 1, "other")
    assert sent["stream_options"] == {"include_usage": True, "x": 1}


@pytest.mark.parametrize(("option", "fix"), [("messages", "give the question as query"), ("stream", r"use chat\(")])
def test_refuses_what_it_makes_itself(server, option, fix):
    with pytest.raises(RequestError, match=fix):
        Face(server).client.stream([TEA], "?", **{option: []})
    assert server.requests == []


def test_refused_requests_are_not_sent(chat, server):
    with pytest.raises(RequestTypeError, match="blocks must be a sequence"):
        chat(TEA, "?")
    assert server.requests == []
    assert chat.engine.stats().in_flight == 0


def test_blocks_may_come_from_a_generator(chat):
    assert chat((text for text in (TEA, MILK)), "?").plan.order == (0, 1)


def test_the_session_may_come_from_around(chat):
    with session("u"):
        chat([TEA], "one")
        chat([TEA], "two", session_id="v")
    assert len(chat.client.history("u")) == len(chat.client.history("v")) == 2


def test_tenants_need_their_salts_at_several_replicas(route):
    face = route(2)
    with pytest.raises(RequestError, match=r"namespace='a' at 2 replicas needs tenants=Tenants\(key\)"):
        face([TEA], "?", namespace="a")
    assert route(1)([TEA], "?", namespace="a").answer
    tenants = Tenants("a key of more than sixteen bytes")
    salted = route(2, tenants=tenants)
    for namespace in ("a", "b"):
        salted([TEA], "?", namespace=namespace, extra_body={"cache_salt": "stolen", "top_k": 1})
    salts = [request.get("cache_salt") for server in salted.servers for request in server.requests]
    assert salts == [None, tenants.cache_salt("a"), tenants.cache_salt("b")]


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


@pytest.mark.parametrize("part", ["text", {"text": "no type"}, {"type": 1}, None])
def test_parts_are_in_openai_form(chat, server, part):
    with pytest.raises(RequestTypeError, match=r"query\[1\] is a .*; a question is a str, or a list of parts"):
        chat([TEA], [TEXT, part])
    assert server.requests == []


def test_every_request_of_a_tenant_has_its_salt(server):
    tenants = Tenants("a key of more than sixteen bytes")
    face = Face(server, tenants=tenants)
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
    with pytest.raises(AnswerError):  # it passes on nothing that comes back
        ContextPilotClient(Chat, model="m", tenants=tenants).chat([TEA], "?", namespace="a", cache_salt="stolen")
    assert "cache_salt" not in asked[0]
    assert asked[0]["extra_body"] == {"cache_salt": tenants.cache_salt("a")}


def test_tenants_have_an_index_and_a_history_of_their_own(server):
    """Case V8: neither the other's documents nor its conversation show in what a tenant is sent."""
    face = Face(server, tenants=Tenants("a key of more than sixteen bytes"))
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


# --- what is refused, and what is read when ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"messages": []}, RequestError, "messages cannot be given, it is built here: give the question as query"),
        ({"prompt": "x"}, RequestError, "earlier turns are kept by session_id"),
        ({"namespace": 5}, RequestTypeError, "namespace=5 must be a str; give the tenant's name"),
        ({"namespace": None}, RequestTypeError, "namespace=None must be a str"),
        ({"extra_body": "x"}, RequestTypeError, "extra_body is a str; it must be a dict of the server's options"),
        ({"extra_body": [("messages", [])]}, RequestTypeError, "extra_body is a list; it must be a dict"),
        ({"extra_body": {"n": 2}}, RequestError, "n=2 asks for other than one answer"),
        ({"stream_options": []}, RequestTypeError, "stream_options is a list; it must be a dict"),
    ],
)
def test_every_refusal_says_what_to_do(chat, server, options, error, message):
    with pytest.raises(error, match=message):
        chat([TEA], "?", **options)
    assert server.requests == []
    assert chat.engine.stats().in_flight == 0


@pytest.mark.parametrize("query", [5, None, {"type": "text"}, [], b"bytes"])
def test_a_question_is_a_text_or_parts(chat, server, query):
    with pytest.raises(RequestTypeError, match="query"):
        chat([TEA], query)
    assert server.requests == []


@pytest.mark.parametrize("model", ["", None, 5])
def test_a_model_has_a_name(server, model):
    with pytest.raises(ConfigError, match=f"model={model!r} must be the name"):
        ContextPilotClient(openai_client(server), model=model)


def test_blocks_from_an_iterator_reach_the_second_replica_too(route):
    face = route(2)
    face.servers[0].script = [refusing(500)]
    face(iter([TEA, MILK]), "?")
    assert face.servers[0].requests[0]["messages"] == face.servers[1].requests[0]["messages"]
    assert MILK in face.servers[1].requests[0]["messages"][0]["content"]


def test_a_question_is_as_it_was_when_it_was_asked(server):
    blocks, parts = [TEA], [{"type": "image_url", "image_url": {"url": "first"}}]
    stream = Face(server).client.stream(blocks, parts)
    blocks.append(MILK)
    parts[0]["image_url"]["url"] = "second"
    parts.append(TEXT)
    stream.read()
    shown, *sent = server.requests[0]["messages"][0]["content"]
    assert MILK not in shown["text"]
    assert sent == [{"type": "image_url", "image_url": {"url": "first"}}]


def test_parts_may_be_a_tuple(chat, server):
    chat([], (TEXT,))
    assert server.requests[0]["messages"][0]["content"] == [TEXT]


@pytest.mark.parametrize("options", [{"n": 2}, {"n": 0}, {"extra_body": {"n": 3}}])
def test_more_than_one_answer_is_refused_and_one_is_not(chat, server, options):
    with pytest.raises(RequestError, match="leave n out, and ask once for each answer"):
        chat([TEA], "?", **options)
    assert server.requests == []
    assert chat.engine.stats().planned == 0
    for one in (1, None, openai.NOT_GIVEN):
        assert chat([TEA], "?", n=one).answer == "Hello there"


def test_a_text_prompt_has_one_answer_too(chat, server):
    with pytest.raises(RequestError, match="n=2"):
        chat.complete([TEA], "?", n=2)
    assert server.requests == []


def test_the_callers_options_stay_as_they_are(server):
    body, options = {"top_k": 1}, {"x": 1}
    face = Face(server, tenants=Tenants("a key of more than sixteen bytes"))
    face([TEA], "?", extra_body=body, stream_options=options)
    assert (body, options) == ({"top_k": 1}, {"x": 1})


def test_the_session_of_the_call_stands_above_the_one_around(chat):
    with session("around"):
        chat([TEA], "one", session_id="own")
    assert chat.client.history("around") == ()
    assert len(chat.client.history("own")) == 2


class Chunks:
    """A response that says whether it was closed."""

    closed = False

    def __iter__(self):
        return iter(())

    def close(self):
        self.closed = True


def test_a_response_is_closed_at_the_end_whatever_happens():
    ended, failed = Chunks(), Chunks()
    with closing_stream(ended) as chunks:
        assert chunks is ended
        assert not ended.closed
    with pytest.raises(ValueError, match="x"), closing_stream(failed):
        raise ValueError("x")
    assert ended.closed
    assert failed.closed


def test_a_response_that_cannot_be_closed_is_left_alone():
    with closing_stream(iter(())) as chunks:
        assert list(chunks) == []


@pytest.mark.parametrize("query", ["", " \n"])
def test_nothing_is_not_sent(chat, server, query):
    for ask in (chat, chat.complete):
        with pytest.raises(RequestError, match=r"the question is empty \(\d characters\), and has no documents"):
            ask([], query)
    assert server.requests == []
    assert chat.engine.stats().in_flight == 0
    chat([], query, instructions="Tell a joke.")  # there is something to send
    assert server.requests[0]["messages"][0]["content"] == "Tell a joke."
