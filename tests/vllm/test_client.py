"""Clients and engine on a real server: predicted against reported cached tokens, plans on the truth, tenants."""

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_integrations.serving.chat.tenants import Tenants
from contextpilot_integrations.serving.client.client import ContextPilotClient
from tests.conftest import require
from tests.vllm.conftest import POOL_BLOCKS
from tests.vllm.questions import made_up_document, retrieved

openai = require("openai")
for module in ("zmq", "msgspec"):
    require(module)

from tests.vllm.following import ask, following, forget_everything, prompt  # noqa: E402

SHORT = {"max_tokens": 2, "temperature": 0}


@pytest.fixture
def library(server):
    with openai.OpenAI(base_url=server.base_url, api_key="-", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def follower(server):
    forget_everything(server)
    with following(server) as started:
        started.settle()
        yield started


def pilot(library, follower=None, **options):
    """A client whose engine follows the server's events, or estimates."""
    mirror = None if follower is None else follower.mirror
    return ContextPilotClient(
        library, model="smollm2", engine=ReuseEngine(EngineConfig(kv_block=32), mirror=mirror), **options
    )


@pytest.fixture
def client(library, follower):
    return pilot(library, follower)


def documents(topic, number):
    return [made_up_document(topic, each) for each in range(number)]


def close(observation, block=32):
    return abs(observation.predicted - observation.reported) <= block


def another_application_fills(server, blocks):
    """Prompts that nobody here has planned take ``blocks`` KV blocks of the pool."""
    while blocks > 0:
        size = min(blocks, 42)
        ask(server, prompt(f"another application {blocks}", size * server.block_size))
        blocks -= size


# --- predictions -----------------------------------------------------------------------------------------------------


def test_predictions_hold_before_and_after_forced_eviction(server, client):
    questions = retrieved(60)
    observations, prompt_tokens = [], 0
    for number, (question, blocks) in enumerate(questions):
        if number == 30:
            another_application_fills(server, POOL_BLOCKS)
        result = client.chat(blocks, question, **SHORT)
        observations.append(result.observation)
        prompt_tokens += result.usage.prompt_tokens
    assert {observation.source for observation in observations} == {"events"}
    assert sum(map(close, observations)) >= 57
    before, after = observations[:30], observations[30:]
    assert sum(map(close, before)) >= 28 and sum(map(close, after)) >= 28
    for part in (before, after):
        assert sum(observation.reported for observation in part) > 0.1 * prompt_tokens / 2
    stats = client.engine.stats()
    assert stats.compared == 60 and stats.source == "events"
    assert stats.reported_tokens == sum(observation.reported for observation in observations)


def test_after_eviction_the_truth_serves_better_than_the_estimate(server, library, follower):
    """The older of two contexts is gone: the estimate goes after it because it was longer, the truth does not."""
    old, young = documents("old", 7), documents("young", 4)
    mixed = [old[0], young[0], old[1], young[1], old[2], young[2], old[3], young[3], *old[4:]]
    served = {}
    for name, client in (("truth", pilot(library, follower)), ("estimate", pilot(library))):
        forget_everything(server)
        client.chat(old, "What is old?", **SHORT)
        kept = client.chat(young, "What is young?", **SHORT).usage.prompt_tokens // server.block_size
        another_application_fills(server, POOL_BLOCKS - 10 - kept)
        follower.settle()
        served[name] = client.chat(mixed, "What is old and what is young?", **SHORT).observation
    assert served["truth"].source == "events" and served["estimate"].source == "estimate"
    assert close(served["truth"])
    assert served["truth"].reported > served["estimate"].reported + 5 * server.block_size


def test_the_next_turn_of_a_conversation_finds_the_whole_last_prompt(client):
    first = client.chat(documents("talk", 4), "What is it?", session_id="s", **SHORT)
    second = client.chat(documents("talk", 6), "And what else?", session_id="s", **SHORT)
    assert close(second.observation)
    assert second.observation.reported >= first.usage.prompt_tokens - 2 * 32


def test_text_prompts_are_predicted_as_well(client):
    first = client.complete(documents("text", 5), "It was", **SHORT)
    second = client.complete([*documents("text", 5), made_up_document("text", 6)], "She was", **SHORT)
    assert first.observation.reported == 0
    assert close(second.observation)
    assert second.observation.reported > 0.8 * first.usage.prompt_tokens


def test_a_stream_that_nobody_reads_to_its_end_does_no_harm(client):
    blocks = documents("broken off", 6)
    stream = client.stream(blocks, "Tell me everything.", max_tokens=200, temperature=0)
    next(iter(stream))
    stream.close()
    again = client.chat(blocks, "Tell me less.", **SHORT)
    assert again.observation.reported > 300  # the prompt was sent, and stays planned
    assert close(client.chat(blocks, "And less.", **SHORT).observation)


# --- what passes through ---------------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}


def test_tools_pass_through(client):
    blocks = documents("tools", 4)
    client.chat(blocks, "What is here?", tools=[TOOL], **SHORT)
    again = client.chat(blocks, "And what is there?", tools=[TOOL], tool_choice="auto", **SHORT)
    assert again.observation.reported > 0 and close(again.observation)


def test_a_question_of_parts_passes_through(client):
    blocks = documents("parts", 4)
    client.chat(blocks, "What is here?", **SHORT)
    parts = [{"type": "text", "text": "And what is"}, {"type": "text", "text": "there?"}]
    assert client.chat(blocks, parts, **SHORT).observation.reported > 0


def test_what_the_server_alone_understands_passes_through(server, client):
    (only,) = server.post("/tokenize", {"prompt": " yes"})["tokens"]
    result = client.chat(documents("extra", 2), "Is it?", extra_body={"allowed_token_ids": [only]}, **SHORT)
    assert result.answer == " yes yes"


# --- tenants ---------------------------------------------------------------------------------------------------------


def test_tenants_never_share_the_servers_cache(library, follower):
    tenants = Tenants("a secret that only the test knows")
    client = pilot(library, follower, tenants=tenants)
    blocks = documents("of both", 6)

    def reported(namespace, question, **options):
        observation = client.chat(blocks, question, namespace=namespace, **SHORT, **options).observation
        assert close(observation)
        return observation.reported

    assert reported("red", "What is it?") == 0
    assert reported("red", "What else is it?") > 300
    assert reported("blue", "What is it?") == 0
    stolen = {"cache_salt": tenants.cache_salt("red")}
    assert reported("green", "What is it?", extra_body=stolen) == 0  # a salt of the caller's is replaced
