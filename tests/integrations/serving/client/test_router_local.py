"""The router before two real llama.cpp servers. Cached tokens are asserted, times never."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from contextpilot_core import ReuseEngine
from contextpilot_integrations.demo.arms import INSTRUCTIONS
from contextpilot_integrations.demo.documents import python_reference, terms
from contextpilot_integrations.demo.jobs import QUICK
from contextpilot_integrations.demo.questions import committed_questions, select
from contextpilot_integrations.retrieval import Bm25Index
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.serving.client.router import ReplicaRouter
from contextpilot_integrations.serving.local.engine import LocalEngine
from tests.conftest import require, require_local_model

for name in ("openai", "rank_bm25", "rich"):
    require(name)
require_local_model()


@pytest.fixture
def replicas():
    with LocalEngine(process=True, threads=1) as first, LocalEngine(process=True, threads=1) as second:
        yield first, second


@pytest.fixture(scope="module")
def batch():
    """The questions of the demo's quick batch with their documents, in order of arrival."""
    asked = select(committed_questions(), seed=0, topics=QUICK.topics, users=QUICK.users, turns=1)
    index = Bm25Index(python_reference(), tokenize=terms)
    return [([hit.block.text for hit in index.search(text, QUICK.documents)], text) for text in asked.batch]


def ask(client, blocks, question):
    return client.chat(blocks, question, instructions=INSTRUCTIONS, max_tokens=2)


def test_routing_finds_half_as_much_again_as_round_robin(replicas, batch):
    """Both arms plan with an engine per replica; they differ in where a question goes, and in nothing else."""
    clients = [
        ContextPilotClient(engine.client(max_retries=0), model=engine.model, engine=ReuseEngine())
        for engine in replicas
    ]
    taking_turns = [ask(clients[number % 2], *each) for number, each in enumerate(batch)]
    for engine in replicas:
        engine.clear()
    router = ReplicaRouter([engine.client(max_retries=0) for engine in replicas], model=replicas[0].model)
    routed = [ask(router, *each) for each in batch]
    plain, better = (sum(answer.usage.cached_tokens for answer in answers) for answers in (taking_turns, routed))
    assert better >= 1.5 * plain > 0
    assert all(status.sent >= 2 for status in router.status())


def test_every_request_is_answered_when_a_replica_is_killed_half_way(replicas, batch):
    router = ReplicaRouter([engine.client(max_retries=0) for engine in replicas], model=replicas[0].model)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, router, *each) for each in batch + batch]
        for number, done in enumerate(as_completed(asked)):
            assert done.result().finish_reason is not None
            if number == len(batch) // 2:
                os.kill(replicas[1]._server._child.pid, signal.SIGKILL)
    first, second = router.status()
    assert first.up
    assert not second.up
    assert first.sent + second.sent > 2 * len(batch)  # something was under way there, and asked again
    for engine in router.engines:
        assert engine.stats().in_flight == 0
        engine.check_integrity()
