"""Which server gets a question, and what happens when it fails."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ConfigError, RequestError, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.calls import Chats, Limits
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.serving.client.conversation import Conversation
from contextpilot_integrations.serving.client.replicas import Replica, Replicas, is_failure
from tests.conftest import require
from tests.integrations.chat_server import chat_server, good, refusing
from tests.integrations.serving.client.faces import (
    MILK,
    RICE,
    SALT,
    TEA,
    Face,
    RouterFace,
    blocked,
    document,
    openai,
    openai_client,
    wait_for,
)

httpx = require("httpx")


def test_refuses_the_wrong_client(server):
    with pytest.raises(ConfigError, match="use AsyncContextPilotClient"):
        ContextPilotClient(openai_client(server, asynchronous=True), model="m")
    with pytest.raises(ConfigError, match="use ContextPilotClient"):
        AsyncContextPilotClient(openai_client(server), model="m")
    with pytest.raises(ConfigError, match=r"must be an openai\.OpenAI"):
        ContextPilotClient(object(), model="m")


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
    face = RouterFace(servers[:2])
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
    face = RouterFace(servers[:2], retry_seconds=10)
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
    face = RouterFace([gone, servers[0]])
    assert face([TEA], "?").answer == "Hello there"
    assert face.up == [False, True]


def test_a_replica_that_does_not_answer_in_time(servers):
    release = threading.Event()
    servers[0].script = [lambda exchange: (release.wait(20), exchange.hang_up())]
    face = RouterFace(servers[:2])
    assert face([TEA], "?", timeout=2).answer == "Hello there"
    release.set()
    assert face.up == [False, True]


def test_logs_say_which_replica_failed_and_hold_no_text(servers, caplog):
    servers[0].script = [refusing(500, "prompt was: tea-1 tea-2")]
    face = RouterFace(servers[:2], retry_seconds=2)
    face([TEA], "?")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("contextpilot")] == [
        f"replica 0 ({servers[0].base_url.split('/')[2]}) failed (InternalServerError): left out for 2 s"
    ]


# --- by themselves -------------------------------------------------------------------------------------------------


def idle(number, clock, **options):
    replicas = [Replica(Chat, ReuseEngine(), f"{n}") for n in range(number)]
    return Replicas(replicas, clock=clock, **{"max_imbalance": 4, "retry_seconds": 1, **options})


def attempts(replicas, conversation=None):
    chats = Chats(replicas, "m", Limits(9, None, len), None, ManualClock())
    question = chats.question([TEA], "?", None, "", "default", {})
    return chats.attempts(question, conversation or Conversation())


def failing(attempt, error):
    """Let an attempt end with this error; tell whether the question may go on."""
    return attempt.__exit__(type(error), error, None)


def raised_by(server):
    with pytest.raises(openai.APIError) as caught:
        openai_client(server).chat.completions.create(model="m", messages=[])
    return caught.value


@pytest.mark.parametrize(
    ("status", "failure"), [(500, True), (502, True), (503, True), (400, False), (404, False), (429, False)]
)
def test_a_server_that_has_trouble_failed_and_one_that_refuses_did_not(server, status, failure):
    server.script = [refusing(status)]
    assert is_failure(raised_by(server)) is failure


def test_a_broken_connection_is_a_failure_whoever_reports_it():
    with chat_server() as gone:
        pass
    assert is_failure(raised_by(gone))
    assert is_failure(ConnectionResetError())
    assert is_failure(httpx.ReadTimeout("slow"))


@pytest.mark.parametrize("error", [None, ValueError(), RequestError("no"), KeyboardInterrupt()])
def test_other_errors_are_nobodys_failure(error):
    assert not is_failure(error)


def test_a_question_is_tried_once_at_every_replica():
    tried, going_on = [], []
    for attempt in attempts(idle(3, ManualClock())):
        tried.append(attempt.replica.name)
        going_on.append(failing(attempt, ConnectionError()))
    assert tried == ["0", "1", "2"]
    assert going_on == [True, True, False]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_errors_that_are_no_failure_do_not_move_on(error):
    replicas = idle(2, ManualClock())
    assert failing(next(attempts(replicas)), error) is False
    assert [status.up for status in replicas.status()] == [True, True]
    assert [status.outstanding for status in replicas.status()] == [0, 0]


def test_what_the_caller_has_seen_does_not_move_on():
    attempt = next(attempts(idle(2, ManualClock())))
    attempt.accepted()
    attempt.seen = True
    assert failing(attempt, ConnectionError()) is False


def test_a_plan_that_was_never_accepted_is_taken_back():
    replicas = idle(1, ManualClock())
    failing(next(attempts(replicas)), ConnectionError())
    accepted = next(attempts(replicas))
    accepted.accepted()
    failing(accepted, ConnectionError())
    stats = replicas.engines[0].stats()
    assert (stats.abandoned, stats.committed, stats.in_flight) == (1, 1, 0)


def test_waits_double_up_to_a_bound():
    clock = ManualClock()
    replicas = idle(2, clock)
    first = replicas.engines[0]
    waits = []
    for _ in range(8):
        attempt = next(attempts(replicas, Conversation(engine=first)))
        assert attempt.replica.engine is first
        failing(attempt, ConnectionError())
        waits.append(attempt.replica.retry_at - clock())
        clock.advance(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]


def test_when_none_is_due_the_one_that_is_due_first_is_asked():
    clock = ManualClock()
    replicas = idle(2, clock)
    second, first = (Conversation(engine=engine) for engine in reversed(replicas.engines))
    failing(next(attempts(replicas, second)), ConnectionError())
    clock.advance(0.5)
    failing(next(attempts(replicas, first)), ConnectionError())
    assert next(attempts(replicas)).replica.name == "1"


def test_one_server_alone_is_asked_whatever_it_did_before(server, caplog):
    face = Face(server)
    server.script = [refusing(500), refusing(500), good()]
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            face([TEA], "?")
    assert face([TEA], "?").answer == "Hello there"
    assert caplog.records == []


def test_a_replica_whose_answer_is_none_is_left_out(route):
    face = route(2)
    face.servers[0].script = [lambda exchange: exchange.page("<html>Bad gateway</html>")]
    assert face([TEA], "?").answer == "Hello there"
    assert face.up == [False, True]
    assert face.router.engines[0].stats().cached_tokens == 0
    face.check()
