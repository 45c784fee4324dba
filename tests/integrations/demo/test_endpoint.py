"""Where the demo asks: a server that runs, and llama.cpp in this process."""

import traceback
from collections.abc import Callable, Iterator

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.demo.endpoint import GREETING, embedded, remote
from contextpilot_integrations.serving.chat.usage import Usage
from tests.conftest import require, require_local_model
from tests.integrations.chat_server import GOOD_USAGE, ChatServer, Exchange, breaking_off, chat_server, good, refusing
from tests.integrations.gate_servers import saying

require("openai")

PROMPT = ({"role": "user", "content": "What is tea?"},)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def test_a_server_is_greeted_and_then_asked_with_the_options(server: ChatServer) -> None:
    with remote(server.base_url, "m", None, 7) as endpoint:
        assert (endpoint.model, endpoint.where, endpoint.clear) == ("m", server.base_url, None)
        endpoint.ask(PROMPT)
    assert [body["messages"] for body in server.requests] == [list(GREETING), list(PROMPT)]
    for body in server.requests:
        assert (body["model"], body["max_tokens"], body["temperature"], body["stream"]) == ("m", 7, 0, True)
        assert body["stream_options"] == {"include_usage": True}


def test_the_answer_and_its_usage_are_read_from_the_stream(server: ChatServer) -> None:
    with remote(server.base_url, "m", None, 7) as endpoint:
        server.script = [good("A", " drink."), good("")]
        reply, silent = endpoint.ask(PROMPT), endpoint.ask(PROMPT)
    assert reply.text == "A drink."
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (100, 64)
    assert reply.ttft_ms is not None
    assert (silent.text, silent.ttft_ms) == ("", None), "nothing was generated"
    assert silent.usage.prompt_tokens == GOOD_USAGE["prompt_tokens"]


def test_a_server_that_refuses_to_report_usage_is_not_asked_for_it_again(server: ChatServer) -> None:
    server.script = [refusing(400), good()]
    with remote(server.base_url, "m", None, 7) as endpoint:
        assert endpoint.ask(PROMPT).usage == Usage()
    assert ["stream_options" in body for body in server.requests] == [True, False, False]


@pytest.mark.parametrize(("status", "asked"), [(400, 2), (401, 1), (500, 1)])
def test_a_server_that_refuses_everything_is_no_endpoint(server: ChatServer, status: int, asked: int) -> None:
    server.script = [refusing(status)]
    with pytest.raises(ConfigError, match="does not answer as an OpenAI-compatible endpoint .*correct --base-url"):
        with remote(server.base_url, "m", None, 7):
            pytest.fail("it refused")
    assert len(server.requests) == asked


def test_a_model_that_is_not_served_is_named(server: ChatServer) -> None:
    server.script, server.models = [refusing(404)], saying('{"data": [{"id": "right"}]}', 200)
    with pytest.raises(ConfigError, match="--model 'wrong' is not served at .*: 'right'$"):
        with remote(server.base_url, "wrong", None, 7):
            pytest.fail("it has no such model")


@pytest.mark.parametrize("model", ["m", None])
def test_nobody_there_is_no_endpoint(model: str | None) -> None:
    with pytest.raises(ConfigError, match="--base-url http://127.0.0.1:9/v1 does not answer"):
        with remote("http://127.0.0.1:9/v1", model, None, 7):
            pytest.fail("nobody is there")


@pytest.mark.parametrize("answer", ["<html>secret</html>", "{}", 'data: {"secret": []}\n\n'])
def test_whoever_greets_back_in_another_shape_is_no_endpoint(server: ChatServer, answer: str) -> None:
    server.script = [saying(answer, 200)]
    with pytest.raises(ConfigError, match="does not answer as an OpenAI-compatible endpoint") as caught:
        with remote(server.base_url, "m", None, 7):
            pytest.fail("there was no answer")
    assert "secret" not in str(caught.value)


def sending(*texts: str, end: bool = True) -> Callable[[Exchange], None]:
    """A stream of these, which ends as it should or breaks off."""

    def behave(exchange: Exchange) -> None:
        exchange.start()
        for text in texts:
            exchange.send(text)
        exchange.end() if end else exchange.hang_up()

    return behave


CHOICE = '{"choices": [{"index": 0, "delta": VALUE}]}'
SHAPES = {"chunk": "VALUE", "choices": '{"choices": VALUE}', "choice": '{"choices": [VALUE]}', "delta": CHOICE}
CONTENT = CHOICE.replace("VALUE", '{"content": VALUE}')
BROKEN = {
    "half a stream": breaking_off("secret"),
    "no answer at all": lambda exchange: exchange.hang_up(),
    "half a chunk": sending('data: {"secret', end=False),
    "no JSON": sending("data: secret\n\n"),
    "JSON nested too deeply": sending(f"data: {'[' * 100_000}\n\n"),
    "a number without end": sending(f"data: {'9' * 5_000}\n\n"),
    "an error in the stream": sending('data: {"error": {"message": "secret"}}\n\n'),
    **{
        f"{name}: {value}": sending(f"data: {shape.replace('VALUE', value)}\n\n")
        for name, shape in SHAPES.items()
        for value in ("null", "5", '"secret"', "true", "[5]")
    },
    **{
        f"content: {value}": sending(f"data: {CONTENT.replace('VALUE', value)}\n\n")
        for value in ("5", "true", '["secret"]', '{"secret": 1}')
    },
}


@pytest.mark.parametrize("behaviour", BROKEN.values(), ids=BROKEN)
def test_a_server_that_breaks_off_or_talks_nonsense_is_named_in_one_line(
    server: ChatServer, behaviour: Callable[[Exchange], None]
) -> None:
    def told(ask: Callable[[], object]) -> None:
        with pytest.raises(
            ConfigError, match="does not answer as an OpenAI-compatible endpoint .*--base-url"
        ) as caught:
            ask()
        assert "secret" not in "".join(traceback.format_exception(caught.value))
        assert "\n" not in str(caught.value)

    with remote(server.base_url, "m", None, 7) as endpoint:
        server.script = [behaviour]
        told(lambda: endpoint.ask(PROMPT))
    told(lambda: remote(server.base_url, "m", None, 7).__enter__())


def test_the_key_and_what_is_secret_in_the_url_stand_nowhere(server: ChatServer) -> None:
    url = server.base_url.replace("//", "//me:secret@")
    with remote(url, "m", "secret-key", 7) as endpoint:
        assert endpoint.where == server.base_url
        assert "secret" not in repr(endpoint)


def test_every_arm_of_every_run_begins_in_its_own_way_where_nothing_can_be_emptied(server: ChatServer) -> None:
    with remote(server.base_url, "m", None, 7) as endpoint:
        first, again = endpoint.instructions("Be brief.", "plain"), endpoint.instructions("Be brief.", "plain")
    assert first.endswith("(plain).\nBe brief.") and again.endswith("(plain).\nBe brief.")
    assert first.split()[1] != again.split()[1]


def test_the_embedded_model_answers_and_forgets_when_it_is_cleared() -> None:
    require_local_model()
    prompt = ({"role": "user", "content": "Tea is a drink. " * 40 + "What is tea?"},)
    with embedded(4) as endpoint:
        assert endpoint.instructions("Be brief.", "plain") == "Be brief."
        assert endpoint.clear is not None
        first, again = endpoint.ask(prompt), endpoint.ask(prompt)
        endpoint.clear()
        anew = endpoint.ask(prompt)
        with remote(f"{endpoint.client.base_url}", None, None, 4) as other:
            assert other.model == endpoint.model, "the first that it serves"
    assert first.text == again.text == anew.text != ""
    assert first.usage.prompt_tokens == again.usage.prompt_tokens and (first.usage.prompt_tokens or 0) > 100
    assert (first.usage.cached_tokens, anew.usage.cached_tokens) == (0, 0)
    assert (again.usage.cached_tokens or 0) > 100
