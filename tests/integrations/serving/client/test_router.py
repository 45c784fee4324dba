"""The router against the real OpenAI client library and real HTTP servers: choice, sessions, failures (case V7)."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.errors import ConfigError, RequestError
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.chat.tenants import Tenants
from contextpilot_integrations.serving.client.calls import Chats, Limits
from contextpilot_integrations.serving.client.conversation import Conversation
from contextpilot_integrations.serving.client.replicas import Replica, Replicas
from contextpilot_integrations.serving.client.router import AsyncReplicaRouter, ReplicaRouter
from tests.conftest import require
from tests.integrations.chat_server import breaking_off, chat_server, completing, good, refusing

openai = require("openai")


def document(name: str, words: int = 60) -> str:
    return " ".join(f"{name}-{number}" for number in range(words))


TEA, MILK, SALT, RICE = (document(name) for name in ("tea", "milk", "salt", "rice"))


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield [stack.enter_context(chat_server()) for _ in range(3)]


@pytest.fixture(params=["sync", "async"])
def route(request, servers):
    """One face for both routers over the servers: ``route(2, ...)`` makes a router of the first two."""
    loop = asyncio.new_event_loop()
    yield lambda number=2, **options: Face(servers[:number], loop if request.param == "async" else None, **options)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Face:
    def __init__(self, servers, loop=None, **options):
        self.servers, self.loop, self.clock = servers, loop, ManualClock()
        kind = openai.AsyncOpenAI if loop else openai.OpenAI
        clients = [kind(base_url=each.base_url, api_key="-", max_retries=0, timeout=10) for each in servers]
        router = AsyncReplicaRouter if loop else ReplicaRouter
        self.router = router(clients, model="m", clock=self.clock, **options)

    def __call__(self, *args, **options):
        answer = self.router.chat(*args, **options)
        return self.loop.run_until_complete(answer) if self.loop else answer

    def complete(self, *args, **options):
        answer = self.router.complete(*args, **options)
        return self.loop.run_until_complete(answer) if self.loop else answer

    def stream(self, *args, **options):
        async def read(stream, pieces):
            async for piece in stream:
                pieces.append(piece)

        stream, pieces = self.router.stream(*args, **options), []
        try:
            if self.loop:
                self.loop.run_until_complete(read(stream, pieces))
            else:
                pieces.extend(stream)
        except Exception as error:  # noqa: BLE001 - what came before it is asked for, too
            return pieces, error
        return pieces, stream.result

    @property
    def counts(self):
        return [len(server.requests) for server in self.servers]

    @property
    def up(self):
        return [status.up for status in self.router.status()]

    def check(self):
        """Nothing is under way or in flight, and the engines are sound."""
        assert [status.outstanding for status in self.router.status()] == [0] * len(self.servers)
        for engine in self.router.engines:
            assert engine.stats().in_flight == 0
            engine.check_integrity()


# --- where a question goes -----------------------------------------------------------------------------------------


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


def blocked(servers):
    """Let every server wait with its answers until the event is set."""
    release = threading.Event()
    for server in servers:
        server.script = [lambda exchange: (release.wait(20), good()(exchange))]
    return release


def wait_for(condition):
    pause = threading.Event()
    for _ in range(1_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never happened")


def test_parallel_agents_that_share_documents_land_on_one_replica(servers):
    """A chain of agents: workers over the same documents at once, then the one that sums up."""
    face = Face(servers[:2], max_imbalance=8)
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


def test_an_overloaded_replica_is_spared(servers):
    face = Face(servers[:2], max_imbalance=2)
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


class Chat:
    """Stands for a client library's client; never asked."""

    class chat:
        class completions:
            create = None


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["ok", "broken", "later"])), max_size=40),
)
def test_the_imbalance_is_bounded_whatever_happens(bound, events):
    clock = ManualClock()
    replicas = Replicas(
        [Replica(Chat, ReuseEngine(), f"{n}") for n in range(3)], max_imbalance=bound, retry_seconds=1, clock=clock
    )
    chats = Chats(replicas, "m", Limits(9, None, len), None, clock)
    waiting = []
    for number, how in events:
        question = chats.question([document(str(number))], "?", None, "", "default", {})
        up = [status.outstanding for status in replicas.status() if status.up]
        attempt = next(chats.attempts(question, Conversation()))
        if not attempt.is_probe:
            assert attempt.replica.outstanding <= min(up) + bound
        waiting.append(attempt)
        if how == "later":
            clock.advance(0.5)
            continue
        while waiting:
            ended, error = waiting.pop(0), ConnectionError() if how == "broken" else None
            if error is None:
                ended.accepted()
            ended.__exit__(None, error, None)
    assert sum(status.outstanding for status in replicas.status()) == len(waiting)


# --- sessions ------------------------------------------------------------------------------------------------------


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


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [refusing(500), refusing(503), lambda exchange: exchange.hang_up()])
def test_a_failed_replica_is_left_out_and_comes_back(route, trouble):
    face = route(2, retry_seconds=10)
    face.servers[0].script = [trouble]
    assert face([TEA], "?").answer == "Hello there"
    assert face.up == [False, True]
    face.clock.advance(9)
    for number in range(3):
        face([document(f"{number}")], "?")
    assert face.counts == [1, 4]
    face.clock.advance(1)  # one request finds out: it fails, and is answered by the other
    face([MILK], "?")
    face([SALT], "?")
    assert face.counts == [2, 6]
    face.clock.advance(19)  # twice as long now
    face([RICE], "?")
    assert face.counts == [2, 7]
    face.servers[0].script = [good()]
    face.clock.advance(1)
    face([document("back")], "?")
    assert face.up == [True, True]
    assert face.counts == [3, 7]
    assert [status.failures for status in face.router.status()] == [0, 0]
    face.check()


def test_only_one_request_finds_out_whether_a_replica_is_back(servers):
    face = Face(servers[:2])
    servers[0].script = [refusing(500)]
    face([TEA], "?")
    face.clock.advance(60)
    release = blocked(servers[:1])
    with ThreadPoolExecutor(1) as pool:
        probe = pool.submit(face, [MILK], "?")
        wait_for(lambda: face.counts == [2, 1])
        for number in range(3):
            face([document(f"{number}")], "?")
        assert face.counts == [2, 4]
        release.set()
        assert probe.result(20).answer == "Hello there"
    assert face.up == [True, True]


def test_requests_that_fail_together_are_one_failure(servers):
    face = Face(servers[:2], retry_seconds=10)
    release = threading.Event()
    servers[0].script = [lambda exchange: (release.wait(20), exchange.hang_up())]
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(face, [TEA, MILK], f"{number}") for number in range(3)]
        wait_for(lambda: face.counts == [3, 0])
        release.set()
        assert {each.result(20).answer for each in asked} == {"Hello there"}
    assert [status.failures for status in face.router.status()] == [1, 0]
    face.check()


@pytest.mark.parametrize(("status", "error"), [(400, "BadRequestError"), (429, "RateLimitError")])
def test_a_refusal_comes_through(route, status, error):
    face = route(2)
    face.servers[0].script = [refusing(status)]
    with pytest.raises(getattr(openai, error)):
        face([TEA], "?", session_id="u")
    assert face.up == [True, True]
    assert face.servers[1].requests == []
    assert face.router.history("u") == ()
    face.check()


def test_a_refusal_shows_that_a_replica_is_back(route):
    face = route(2)
    face.servers[0].script = [refusing(500), refusing(404), good()]
    face([TEA], "?")
    face.clock.advance(60)
    with pytest.raises(openai.NotFoundError):
        face([MILK], "?")
    assert face.up == [True, True]


def test_without_any_replica_the_last_error_comes_through_and_all_are_tried_again(route):
    face = route(3)
    for server, status in zip(face.servers, (500, 502, 503), strict=True):
        server.script = [refusing(status), good()]
    with pytest.raises(openai.InternalServerError) as caught:
        face([TEA], "?")
    assert caught.value.status_code == 503
    assert face.up == [False] * 3
    assert face([TEA], "?").answer == "Hello there"  # at once: not to try would be not to answer
    assert face.counts == [2, 1, 1]
    face.check()


def test_a_replica_that_is_not_there(servers):
    with chat_server() as gone:
        pass
    face = Face([gone, servers[0]])
    assert face([TEA], "?").answer == "Hello there"
    assert face.up == [False, True]


def test_a_replica_that_does_not_answer_in_time(servers):
    release = threading.Event()
    servers[0].script = [lambda exchange: (release.wait(20), exchange.hang_up())]
    face = Face(servers[:2])
    assert face([TEA], "?", timeout=2).answer == "Hello there"
    release.set()
    assert face.up == [False, True]


def test_an_answer_that_was_shown_in_part_is_not_repeated(route):
    face = route(2)
    face.servers[0].script = [breaking_off("Hel"), good()]
    pieces, error = face.stream([TEA], "?", session_id="u")
    assert pieces == ["Hel"]
    assert isinstance(error, Exception) and not isinstance(error, AssertionError)
    assert face.servers[1].requests == []
    assert face.router.history("u") == ()
    assert face.up == [False, True]
    stats = face.router.engines[0].stats()
    assert (stats.committed, stats.abandoned) == (1, 0)  # the prompt was sent: it is in that server's cache
    pieces, result = face.stream([TEA], "?", session_id="u")
    assert (pieces, result.answer) == (["Hello", " there"], "Hello there")
    face.check()


def test_an_answer_that_nobody_has_seen_goes_on(route):
    face = route(2)
    face.servers[0].script = [breaking_off("Hel")]
    assert face([TEA], "?", session_id="u").answer == "Hello there"
    assert [message["content"] for message in face.router.history("u")][1:] == ["Hello there"]
    face.servers[1].script = [breaking_off()]
    face.servers[0].script = [good()]
    face.clock.advance(60)
    pieces, result = face.stream([MILK], "?", session_id="u")  # broke off before its first piece
    assert (pieces, result.answer) == (["Hello", " there"], "Hello there")
    face.check()


def test_a_closed_stream_is_no_failure(servers):
    face = Face(servers[:2])
    with face.router.stream([TEA], "?") as stream:
        next(stream)
    assert face.up == [True, True]
    face.check()


def test_logs_say_which_replica_failed_and_hold_no_text(servers, caplog):
    servers[0].script = [refusing(500, "prompt was: tea-1 tea-2")]
    face = Face(servers[:2], retry_seconds=2)
    face([TEA], "?")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("contextpilot")] == [
        f"replica 0 ({servers[0].base_url.split('/')[2]}) failed (InternalServerError): left out for 2 s"
    ]


# --- what else the calls offer -------------------------------------------------------------------------------------


def test_text_prompts_are_routed_too(route):
    face = route(2)
    face.servers[0].script = [refusing(500)]
    face.servers[1].script = [completing("Yes", ".")]
    result = face.complete([TEA], "Is it good?")
    assert result.answer == "Yes."
    assert face.servers[1].requests[0]["prompt"] == result.prompt


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
        Face(servers[:2], **options)


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
    with pytest.raises(ConfigError, match="is one str"):
        ReplicaRouter.at(servers[0].base_url, model="m")


def test_a_password_in_a_url_is_in_no_name(servers):
    secret = servers[0].base_url.replace("http://", "http://user:hunter2@")
    assert "hunter2" not in repr(ReplicaRouter.at([secret], model="m").status())
