"""The routers over real HTTP servers: sessions that move, chains of agents, settings (case V7)."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.client.router import AsyncReplicaRouter, ReplicaRouter
from tests.forked import in_child
from tests.integrations.chat_server import completing, good, refusing
from tests.integrations.serving.client.faces import (
    MILK,
    RICE,
    SALT,
    TEA,
    RouterFace,
    blocked,
    document,
    openai,
    wait_for,
)


def test_a_question_goes_where_its_documents_are_cached(route):
    face = route(2)
    topics = [[TEA, MILK], [SALT, RICE]]
    for number in (0, 1, 1, 0, 0, 1):
        face(topics[number], "?")
    assert face.counts == [3, 3]
    for server, topic in zip(face.servers, topics, strict=True):
        assert all(topic[0] in request["messages"][0]["content"] for request in server.requests)
    face([MILK, SALT, TEA], "?")  # two of three stand at the first
    assert face.counts == [4, 3]
    face.check()


def test_what_is_cached_nowhere_takes_turns(route):
    face = route(3)
    for number in range(6):
        face([document(f"new-{number}")], "?", instructions="The same for everybody. " * 20)
    assert face.counts == [2, 2, 2]


def test_an_overloaded_replica_is_spared(servers):
    face = RouterFace(servers[:2], max_imbalance=2)
    release = blocked(face.servers)
    with ThreadPoolExecutor(6) as pool:
        asked = []
        for number in range(6):
            asked.append(pool.submit(face, [TEA, MILK], f"question {number}"))
            wait_for(lambda number=number: sum(face.counts) == number + 1)
            if number == 1:
                assert face.counts == [2, 0]
        assert face.counts == [3, 3]  # the third had to go elsewhere; from then on both have the documents
        release.set()
        assert {each.result(20).answer for each in asked} == {"Hello there"}
    face.check()


def test_parallel_agents_that_share_documents_land_on_one_replica(servers):
    """A chain of agents: workers over the same documents at once, then the one that sums up."""
    face = RouterFace(servers[:2], max_imbalance=8)
    release = blocked(face.servers)
    with ThreadPoolExecutor(8) as pool:
        chains = []
        for number in range(8):  # two chains, their agents in turn; nobody has an answer when the last one is asked
            shared = [TEA, MILK] if number % 2 == 0 else [SALT, RICE]
            chains.append(pool.submit(face, [*shared, document(f"own-{number}")], f"agent {number}"))
            wait_for(lambda number=number: sum(face.counts) == number + 1)
        assert [status.outstanding for status in face.router.status()] == [4, 4]
        release.set()
        answers = [chain.result(20) for chain in chains]
    assert face.counts == [4, 4]
    for server, text in zip(face.servers, (TEA, SALT), strict=True):
        assert all(text in request["messages"][0]["content"] for request in server.requests)
    assert [answer.plan.expected_reused_tokens > 0 for answer in answers] == [False] * 2 + [True] * 6
    face([TEA, MILK, *(document(f"own-{number}") for number in (0, 2, 4))], "Sum up.")
    assert face.counts == [5, 4]
    face.check()


def test_a_session_stays_where_its_history_is(route):
    face = route(2)
    face([TEA], "one", session_id="u")  # at the first
    face([SALT, RICE], "?")  # at the second
    result = face([SALT, RICE], "two", session_id="u")
    assert face.counts == [2, 1]
    assert len(result.plan.messages) == 3
    assert len(face.router.history("u")) == 4
    assert face.router.reset("u")
    face([SALT, RICE], "three", session_id="u")
    assert face.counts == [2, 2]


def test_a_session_moves_with_its_history_and_its_labels(route):
    face = route(2, engines=[ReuseEngine(EngineConfig(kv_block=1)) for _ in range(2)])
    face([SALT, RICE, MILK], "another user")  # at the first
    face([TEA, MILK], "one more")  # at the second, whose order would be another one
    first = face([MILK, RICE, SALT], "one", session_id="u")
    assert first.plan.moved
    face([TEA, MILK], "two", session_id="u")
    before = face.router.history("u")
    face.servers[0].script = [refusing(503)]
    result = face([MILK, RICE, SALT, TEA], "three", session_id="u")
    assert face.counts == [4, 2]
    assert result.plan.messages[:-1] == before  # byte for byte
    assert sorted(hint.label for hint in result.plan.hints) == [1, 2, 3, 4]
    assert "[Doc 4]" in before[2]["content"]
    face.servers[0].script = [good()]
    face.clock.advance(60)
    face([SALT], "four", session_id="u")
    assert face.counts == [4, 3]  # it has a new home
    assert face.router.engines[1].stats().known_messages >= 3
    face.check()


@pytest.mark.parametrize("forgets", ["time", "bound", "reset", "evict"])
def test_a_session_moves_byte_for_byte_though_its_engine_forgot_messages(route, forgets):
    clock, config = ManualClock(), EngineConfig(max_messages=1 if forgets == "bound" else 100)
    face = route(2, engines=[ReuseEngine(config, clock=clock) for _ in range(2)])
    first = face([TEA, MILK], "one", session_id="u")
    if forgets == "time":
        clock.advance(config.message_seconds + 1)
    elif forgets == "reset":
        face.router.engines[0].reset()
    elif forgets == "evict":
        face.router.engines[0].evict([first.plan.request_id])
    face([TEA, SALT], "two", session_id="u")
    face([MILK], "three", session_id="u")
    before = face.router.history("u")
    face.servers[0].script = [refusing(503)]
    result = face([TEA, SALT, RICE], "four", session_id="u")
    assert face.counts == [4, 1]
    assert result.prompt[:-1] == before
    shown = [number for message in before for number in re.findall(r"^\[Doc (\d+)\]$", message["content"], re.M)]
    assert all(hint.label is None or shown.count(str(hint.label)) == 1 for hint in result.plan.hints)
    assert result.prompt[-1]["content"].count(RICE) == 1
    assert [engine.stats().in_flight for engine in face.router.engines] == [0, 0]
    assert face([SALT], "five", session_id="u").prompt[: len(before)] == before
    face.check()


def test_a_session_that_cannot_move_stays_where_it_is(route):
    face = route(2)
    face([TEA], "one", session_id="u")
    before = face.router.history("u")
    for server in face.servers:
        server.script = [refusing(500), good()]
    with pytest.raises(openai.InternalServerError):
        face([MILK], "two", session_id="u")
    assert face.router.history("u") == before
    assert [engine.stats().known_messages for engine in face.router.engines] == [1, 0]
    face.check()
    face.clock.advance(60)
    result = face([TEA], "three", session_id="u")
    assert [hint.label for hint in result.plan.hints] == [1]
    assert face.counts == [3, 1]


def test_text_prompts_are_routed_too(route):
    face = route(2)
    face.servers[0].script = [refusing(500)]
    face.servers[1].script = [completing("Yes", ".")]
    result = face.complete([TEA], "Is it good?")
    assert result.answer == "Yes."
    assert face.servers[1].requests[0]["prompt"] == result.prompt


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_imbalance": 0}, "max_imbalance=0 must be a whole number of at least 1"),
        ({"retry_seconds": 0}, "retry_seconds=0 must be a number above 0; give seconds"),
        ({"engines": [ReuseEngine()] * 2}, "1 different engines for 2 clients"),
        ({"engines": [ReuseEngine()]}, "1 different engines for 2 clients"),
        ({"tenants": "key"}, "tenants is a str"),
    ],
)
def test_refuses_bad_settings(servers, options, rule):
    with pytest.raises(ConfigError, match=rule):
        RouterFace(servers[:2], **options)


def test_refuses_the_wrong_clients(servers):
    urls = [server.base_url for server in servers]
    kinds = [openai.OpenAI(base_url=urls[0], api_key="-"), openai.AsyncOpenAI(base_url=urls[1], api_key="-")]
    with pytest.raises(ConfigError, match="use AsyncReplicaRouter"):
        ReplicaRouter(kinds, model="m")
    with pytest.raises(ConfigError, match="use ReplicaRouter"):
        AsyncReplicaRouter(kinds, model="m")
    with pytest.raises(ConfigError, match="clients is empty"):
        ReplicaRouter([], model="m")


def test_base_urls_are_enough(servers):
    router = ReplicaRouter.at([server.base_url for server in servers[:2]], model="m", client_options={"timeout": 10})
    assert router.chat([TEA], "?").answer == "Hello there"
    assert [status.name for status in router.status()] == [
        f"replica {number} ({server.base_url.split('/')[2]})" for number, server in enumerate(servers[:2])
    ]
    twin = AsyncReplicaRouter.at([servers[2].base_url], model="m")
    assert asyncio.run(twin.chat([TEA], "?")).answer == "Hello there"
    with pytest.raises(ConfigError, match="base_urls is a str; it must be a list"):
        ReplicaRouter.at(servers[0].base_url, model="m")


def test_a_password_in_a_url_is_in_no_name(servers):
    secret = servers[0].base_url.replace("http://", "http://user:hunter2@")
    assert "hunter2" not in repr(ReplicaRouter.at([secret], model="m").status())


class Asking:
    """An observer that asks the router of its engine how it does, in a thread of its own, while a plan is told."""

    def __init__(self):
        self.router, self.told, self.stats = None, [], None

    def attached(self, stats):
        self.stats = stats

    def planned(self, plan, seconds):
        self.told.append(self.router.status())
        thread = Thread(target=lambda: self.told.append((self.router.status(), self.stats())))
        thread.start()
        thread.join(10)

    def observed(self, plan, observation):
        self.told.append(self.router.status())


def test_an_observer_may_ask_how_the_replicas_do(route):
    observers = [Asking(), Asking()]
    face = route(2, engines=[ReuseEngine(observer=each) for each in observers])
    for each in observers:
        each.router = face.router
    face([TEA], "?")
    assert [len(each.told) for each in observers] == [3, 0]  # none waited for the other
    face.check()


def test_a_child_that_is_forked_while_questions_are_under_way_counts_none(servers):
    face = RouterFace(servers[:2])
    release = blocked(face.servers)

    def child():
        choosing = face.router._chats.replicas
        figures = [status.outstanding for status in face.router.status()]
        with face.router._chats.sessions.held("default", "s"):  # its turn is the parent's
            return figures, len(choosing.engines)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(face, [document], "?", session_id="s") for document in (TEA, SALT)]
        wait_for(lambda: sum(face.counts) == 1)
        assert in_child(child) == ([0, 0], 2)
        release.set()
        for answer in asked:
            assert answer.result().answer
    face.check()
