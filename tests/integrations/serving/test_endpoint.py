"""Servers that somebody runs: reached, or refused in a line that holds nothing of what they said."""

import traceback

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.endpoint import reached
from tests.conftest import require
from tests.integrations.chat_server import chat_server, refusing
from tests.integrations.gate_servers import saying

require("openai")

NO_ENDPOINT = "does not answer as an OpenAI-compatible endpoint"


@pytest.fixture
def server():
    with chat_server() as running:
        running.models = saying('{"object": "list", "data": [{"id": "first"}, {"id": "second"}]}', 200)
        yield running


def pair(client, model):
    return client, model


@pytest.mark.parametrize(("given", "model"), [("mine", "mine"), (None, "first")])
def test_a_server_is_reached_with_the_model_given_or_its_first(server, given, model):
    with reached(server.base_url, given, "key", pair, max_retries=7) as (client, name):
        assert name == model
        assert (client.api_key, client.max_retries) == ("key", 7)
        assert client.chat.completions.create(model=name, messages=[], stream=True)
    assert client.is_closed()


def test_a_server_is_reached_over_ipv6(ipv6):
    with chat_server(ipv6) as server:
        server.models = saying('{"object": "list", "data": [{"id": "first"}]}', 200)
        with reached(server.base_url, None, "key", pair) as (client, name):
            assert client.chat.completions.create(model=name, messages=[], stream=True)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (saying("<html>secret</html>", 200), "AttributeError"),
        (saying('{"data": null, "secret": 1}', 200), "TypeError"),
        (saying('{"data": []}', 200), "IndexError"),
        (saying("{}", 200), "TypeError|AttributeError"),
        (saying("secret", 200), "JSONDecodeError"),
        (saying('{"data": [{"id": 5}]}', 200), "TypeError"),
        (saying('{"data": [{"id": ""}]}', 200), "TypeError"),
        (saying(r'{"data": [{"id": "\ud83d"}]}', 200), "TypeError"),
        (saying("[" * 100_000, 200), "RecursionError|JSONDecodeError"),
        (saying('{"data": ' + "9" * 5_000 + "}", 200), "ValueError"),
        (lambda exchange: exchange.hang_up(), "APIConnectionError"),
        (refusing(401, "secret"), "AuthenticationError, status 401"),
    ],
)
def test_models_of_another_shape_are_refused_with_none_of_their_words(server, answer, kind):
    server.models = answer
    with pytest.raises(ConfigError, match=rf"--base-url {server.base_url} {NO_ENDPOINT} \(({kind})\)") as caught:
        with reached(server.base_url, None, None, pair):
            pytest.fail("it has no model")
    assert "secret" not in "".join(traceback.format_exception(caught.value)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["secret\nkey", "secr\u00e9t", "secret\x00", "secret \U0001f600", "secret\ud83d"])
def test_a_key_that_no_header_can_carry_is_not_shown(server, key):
    with pytest.raises(ConfigError, match="--api-key holds characters that a key cannot have") as caught:
        with reached(server.base_url, "m", key, pair):
            pytest.fail("it cannot be sent")
    assert "secr" not in "".join(traceback.format_exception(caught.value))


def test_blanks_around_a_key_are_no_part_of_it(server):
    with reached(server.base_url, "m", " key\n", pair) as (client, _):
        assert client.api_key == "key"


def test_a_model_that_no_server_can_be_sent_is_named(server):
    with pytest.raises(ConfigError, match=r"--model 'a\\ud83d' holds half a character"):
        with reached(server.base_url, "a\ud83d", None, pair):
            pytest.fail("it cannot be sent")


def test_nobody_is_there():
    with pytest.raises(ConfigError, match=f"--base-url http://127.0.0.1:9/v1 {NO_ENDPOINT} .*APIConnectionError"):
        with reached("http://127.0.0.1:9/v1", None, None, pair, max_retries=0):
            pytest.fail("nobody is there")


def test_a_refusal_inside_says_so_and_other_errors_are_the_callers(server):
    server.script = [refusing(401, "secret")]
    with pytest.raises(ConfigError, match=rf"{NO_ENDPOINT} \(AuthenticationError, status 401\)"):
        with reached(server.base_url, "m", "key", pair) as (client, model):
            client.chat.completions.create(model=model, messages=[])
    with pytest.raises(ValueError, match="mine"), reached(server.base_url, "m", "key", pair):
        raise ValueError("mine")


MODELS = saying('{"data": [{"id": "first"}, {"id": "second"}]}', 200)


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_model_that_is_not_served_is_named_with_those_that_are(server, status):
    server.script, server.models = [refusing(status, "secret")], MODELS
    told = (
        rf"--model 'wrong' is not served at {server.base_url} \(.*status {status}\); give one of .*: 'first', 'second'$"
    )
    with pytest.raises(ConfigError, match=told) as caught:
        with reached(server.base_url, "wrong", "key", pair, max_retries=0) as (client, model):
            client.chat.completions.create(model=model, messages=[])
    assert "secret" not in str(caught.value)


def test_a_model_that_is_served_or_may_be_is_not_blamed(server):
    for models, model in ((MODELS, "second"), (refusing(404), "wrong"), (saying('{"data": []}', 200), "wrong")):
        server.script, server.models = [refusing(400, "secret")], models
        with pytest.raises(ConfigError, match=rf"{NO_ENDPOINT} \(BadRequestError, status 400\); correct --base-url"):
            with reached(server.base_url, model, "key", pair, max_retries=0) as (client, name):
                client.chat.completions.create(model=name, messages=[])


def test_names_of_models_are_short_and_few(server):
    many = ", ".join(f'{{"id": "line\\nbreak {"x" * 500} {number}"}}' for number in range(9))
    server.script, server.models = [refusing(404)], saying(f'{{"data": [{many}]}}', 200)
    with pytest.raises(ConfigError, match="and 4 more$") as caught:
        with reached(server.base_url, "wrong", "key", pair, max_retries=0) as (client, model):
            client.chat.completions.create(model=model, messages=[])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "give its --api-key"), (403, "give its --api-key"), (404, "which usually ends in /v1")]
)
def test_the_advice_follows_from_the_refusal(server, status, advice):
    server.models = refusing(status)
    with pytest.raises(ConfigError, match=advice), reached(server.base_url, None, "key", pair, max_retries=0):
        pytest.fail("it has no model")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000/v1", "", "http://", "http://[::1", "http://[::1]:port/v1", "ftp://host/v1", "host", "://"),
        *(
            "http://host:0/v1",
            "http://host:70000/v1",
            "/v1",
            "http://host\n/v1",
            "http://host/\x00",
            "http://\ud83d/v1",
        ),
        "http://" + "x" * 70_000,
    ],
)
def test_what_is_no_url_is_named(url):
    with pytest.raises(ConfigError, match="is no URL of a server; give it as http://HOST:PORT/v1") as caught:
        with reached(url, "m", None, pair):
            pytest.fail("there is no server")
    assert f"--base-url {url} " in str(caught.value)


def test_a_password_in_the_url_is_not_shown():
    urls = ("http://me:secret@127.0.0.1:9/v1", "ftp://me:secret@host", "ftp://me:p@secret/x@host")
    for url in (*urls, "http://127.0.0.1:9/v1?key=secret", "http://127.0.0.1:9/v1#secret"):
        with pytest.raises(ConfigError, match="--base-url (http://127.0.0.1:9/v1|ftp://host) ") as caught:
            with reached(url, None, None, pair, max_retries=0):
                pytest.fail("nobody is there")
        assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(url, "")
