"""Scores from servers over HTTP: which are asked for, how they are computed, and what a server may refuse."""

import json
import traceback

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.gate.server import EXACT, F1, LIKELIHOOD, choose_scorer, connect
from tests.conftest import require, require_local_model
from tests.integrations import gate_servers as servers
from tests.integrations.chat_server import chat_server, refusing

require("openai")

BOX = "[Doc 1]\n===\nBox 1 has the code K17.\n===\n\nWhat is its code?"
PROMPTS = {arm: [{"role": "system", "content": "Be brief."}, {"role": "user", "content": BOX}] for arm in ("a", "b")}
SPEAKING = servers.speaking(servers.reads_everything)


@pytest.fixture
def server():
    with chat_server() as running:
        yield running


@pytest.fixture
def connected(server):
    with connect(server.base_url, "m", None) as connection:
        yield connection


def test_the_answer_is_scored_where_a_server_has_no_likelihoods(server, connected):
    server.script = [SPEAKING]
    scorer = choose_scorer(connected, None, answer_tokens=7)
    assert scorer.metrics == (F1, EXACT)
    assert scorer.settings == {"model": "m", "metric": F1, "answer_tokens": 7}
    server.requests.clear()
    assert scorer.score(PROMPTS, ["the K17", "K18"]) == {arm: {F1: 1.0, EXACT: 1.0} for arm in PROMPTS}
    assert scorer.score({"a": PROMPTS["a"]}, ["K17 or K18"])["a"] == {F1: pytest.approx(0.5), EXACT: 0.0}
    assert [body["messages"] for body in server.requests] == [PROMPTS["a"], PROMPTS["b"], PROMPTS["a"]]
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in server.requests} == {("m", 7, 0)}


def test_vllm_gives_the_mean_likelihood_of_the_answers_tokens(server, connected):
    server.script = [servers.like_vllm]
    scorer = choose_scorer(connected, None, answer_tokens=7)
    assert scorer.metrics == (LIKELIHOOD,)
    assert scorer.settings == {"model": "m", "metric": LIKELIHOOD}
    server.requests.clear()
    assert scorer.score({"a": PROMPTS["a"]}, ["K17", "never scored"]) == {"a": {LIKELIHOOD: -(3 + 2 + 1) / 3}}
    template, gold, scored = server.requests
    assert template["messages"] == PROMPTS["a"] and template["add_generation_prompt"]
    assert (gold["prompt"], gold["add_special_tokens"]) == ("K17", False)
    assert scored["prompt"][-3:] == [ord(letter) for letter in "K17"] and scored["max_tokens"] == 1


def test_answers_are_scored_where_they_are_wanted_and_nothing_is_tried(server, connected):
    server.script = [servers.like_vllm]
    assert choose_scorer(connected, "answers", answer_tokens=7).metrics == (F1, EXACT)
    assert server.requests == []


def test_a_server_that_only_tokenizes_has_no_likelihoods(server, connected):
    def behave(exchange):
        (servers.like_vllm if exchange.handler.path == "/tokenize" else SPEAKING)(exchange)

    server.script = [behave]
    assert choose_scorer(connected, None, answer_tokens=7).metrics == (F1, EXACT)
    with pytest.raises(ConfigError, match="use --metric answers"):
        choose_scorer(connected, "likelihood", answer_tokens=7)


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (refusing(400, "the secret prompt"), "BadRequestError, status 400"),
        (servers.saying("<html>secret</html>", 200), "AttributeError|TypeError"),
        (servers.saying('{"choices": []}', 200), "IndexError"),
        (servers.saying('{"choices": null, "secret": 1}', 200), "TypeError"),
        (servers.saying('{"choices": 5}', 200), "TypeError"),
        (servers.saying('{"choices": [{"message": null}]}', 200), "AttributeError"),
        (servers.saying('{"choices": [{"message": {"content": ["secret"]}}]}', 200), "AttributeError"),
        (servers.saying('{"secret": ' + "[" * 100_000, 200), "RecursionError"),
        (servers.saying('{"secret": ' + "9" * 5_000 + "}", 200), "ValueError"),
        (servers.saying('"secret"', 200), "AttributeError"),
        (servers.saying("null", 200), "AttributeError|TypeError"),
    ],
)
def test_a_refusal_while_scoring_is_named_by_its_kind_alone(server, connected, behaviour, kind):
    scorer = choose_scorer(connected, "answers", answer_tokens=7)
    server.script = [behaviour]
    with pytest.raises(ConfigError, match=f"did not answer as it should \\(({kind})\\)") as caught:
        scorer.score(PROMPTS, ["K17"])
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def of_shape(tokens="[1, 2]", logprob="-1.0", prompt='"p"'):
    """A server that has likelihoods in the way of llama.cpp, and says so of its tokens."""

    def behave(exchange):
        path, body = exchange.handler.path, exchange.body
        if path == "/apply-template":
            servers.saying(f'{{"prompt": {prompt}}}', 200)(exchange)
        elif path == "/tokenize" and "content" in body:
            servers.saying(f'{{"tokens": {tokens}}}', 200)(exchange)
        elif path == "/completion":
            (token, _) = body["logit_bias"][0]
            scored = f'[{{"id": {json.dumps(token)}, "logprob": {logprob}}}]'
            servers.saying(f'{{"completion_probabilities": {scored}}}', 200)(exchange)
        else:
            refusing(404)(exchange)

    return behave


def test_llama_cpps_way_is_understood(server, connected):
    server.script = [of_shape()]
    scorer = choose_scorer(connected, "likelihood", answer_tokens=7)
    assert scorer.score({"a": PROMPTS["a"]}, ["K17"]) == {"a": {LIKELIHOOD: -1.0}}


@pytest.mark.parametrize(
    "shape",
    [
        *(
            {"tokens": value}
            for value in ("[]", "null", "5", '"12"', "{}", "[null]", '["1"]', "[true]", "[1.5]", "[[1]]")
        ),
        *(
            {"logprob": value}
            for value in ("null", '"-1"', "true", "NaN", "-Infinity", "-1e400", "9" * 400, "[]", "{}")
        ),
        *({"prompt": value} for value in ("[" * 100_000, "9" * 5_000)),
    ],
    ids=lambda shape: str(shape)[:30],
)
def test_a_server_whose_figures_are_none_has_no_likelihoods(server, connected, shape):
    server.script = [of_shape(**shape)]
    with pytest.raises(ConfigError, match="this server offers neither"):
        choose_scorer(connected, "likelihood", answer_tokens=7)


def test_paths_beside_openais_interface_are_reached_without_v1(server, connected):
    paths = []

    def behave(exchange):
        paths.append(exchange.handler.path)
        servers.answer(exchange, {"given": exchange.body})

    server.script = [behave]
    assert connected.post("/tokenize", {"x": 1}) == {"given": {"x": 1}}
    assert paths == ["/tokenize"]
    assert "client" not in repr(connected)  # its key


def test_what_does_not_answer_is_no_endpoint():
    with pytest.raises(ConfigError, match="--base-url http://127.0.0.1:9/v1 does not answer"):
        with connect("http://127.0.0.1:9/v1", None, None):
            pytest.fail("nobody is there")


def test_llama_cpp_is_found_by_itself_and_finds_the_documents_answer_likelier():
    require_local_model()
    from contextpilot_integrations.serving.local import LocalEngine

    with LocalEngine(slots=1, threads=1) as engine, connect(engine.base_url, None, None) as connection:
        assert connection.model == engine.model
        scorer = choose_scorer(connection, "likelihood", answer_tokens=7)
        bare = {"a": PROMPTS["a"], "bare": [PROMPTS["a"][0], {"role": "user", "content": "What is its code?"}]}
        found, wrong = scorer.score(bare, ["K17"]), scorer.score({"a": PROMPTS["a"]}, ["Q83"])
    assert found["a"][LIKELIHOOD] < 0
    assert found["a"][LIKELIHOOD] > found["bare"][LIKELIHOOD] + 0.5
    assert found["a"][LIKELIHOOD] > wrong["a"][LIKELIHOOD] + 0.5
