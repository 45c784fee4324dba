"""Scores from servers over HTTP: which are asked for, how they are computed, and what a server may refuse."""

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
    ],
)
def test_a_refusal_while_scoring_is_named_by_its_kind_alone(server, connected, behaviour, kind):
    scorer = choose_scorer(connected, "answers", answer_tokens=7)
    server.script = [behaviour]
    with pytest.raises(ConfigError, match=f"did not answer as it should \\(({kind})\\)") as caught:
        scorer.score(PROMPTS, ["K17"])
    assert "secret" not in str(caught.value)


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
