"""Questions that wait for each other: the option ``max_wait_ms`` of the asynchronous clients, over real HTTP."""

import asyncio
import threading

import pytest

from contextpilot_core import ConfigError, EngineConfig, RequestError, ReuseEngine
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.router import AsyncReplicaRouter
from tests.conftest import require
from tests.integrations.chat_server import chat_server, good, refusing
from tests.parsing import parse_context

openai = require("openai")

WAIT = 500  # longer than any server here needs: nobody has to be let go because his window ends


def document(name, words=60):
    return " ".join(f"{name}-{number}" for number in range(words))


TEA, MILK, SALT, RICE = (document(name) for name in ("tea", "milk", "salt", "rice"))


@pytest.fixture
def servers():
    with chat_server() as first, chat_server() as second:
        yield [first, second]


@pytest.fixture
def server(servers):
    return servers[0]


def silent():
    return ReuseEngine(EngineConfig(note="none"))


def client_of(server, engine=None, **options):
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key="-", max_retries=0, timeout=20)
    return AsyncContextPilotClient(client, model="m", engine=engine or silent(), **{"max_wait_ms": WAIT, **options})


def together(client, *asked, **options):
    """Ask all at once: answers and errors, in the order of the questions."""

    async def ask():
        chats = [client.chat(blocks, f"question {number}", **options) for number, blocks in enumerate(asked)]
        return await asyncio.gather(*chats, return_exceptions=True)

    return asyncio.run(ask())


def sent(server):
    return [int(request["messages"][-1]["content"].rsplit(" ", 1)[1]) for request in server.requests]


def check_nothing_left(engine, committed):
    engine.check_integrity()
    assert (engine.stats().in_flight, engine.stats().committed) == (0, committed)


def test_questions_that_share_are_sent_one_after_the_other(server):
    client = client_of(server)
    asked = [[TEA, MILK, document("a")], [SALT, RICE], [document("b"), MILK, TEA], [RICE, document("c"), SALT]]
    answers = together(client, *asked)
    assert [number % 2 for number in sent(server)] in ([0, 0, 1, 1], [1, 1, 0, 0])
    for blocks, answer in zip(asked, answers, strict=True):
        items = parse_context(answer.plan.context.text)
        assert sorted(item.body for item in items) == sorted(blocks)
    assert sum(answer.plan.expected_reused_tokens > 0 for answer in answers) == 2
    check_nothing_left(client.engine, 4)


def test_answers_are_not_waited_for(server):
    everybody_is_here = threading.Event()

    def answer_when_all_have_asked(exchange):
        if len(server.requests) == 4:
            everybody_is_here.set()
        assert everybody_is_here.wait(20)
        good()(exchange)

    server.script = [answer_when_all_have_asked]
    answers = together(client_of(server, max_wait_ms=20), *([TEA, document(f"{n}")] for n in range(4)))
    assert [answer.answer for answer in answers] == ["Hello there"] * 4


def test_a_refused_request_reaches_its_caller_only(server):
    client = client_of(server)
    first, wrong, last = together(client, [TEA], [5], [TEA, MILK])
    assert isinstance(wrong, RequestError)
    assert (first.answer, last.answer) == ("Hello there", "Hello there")
    check_nothing_left(client.engine, 2)


def test_an_error_of_the_server_takes_one_plan_back(server):
    server.script = [good(), refusing(429), good()]
    client = client_of(server)
    answers = together(client, *([TEA, document(f"{n}")] for n in range(3)))
    assert [isinstance(answer, openai.RateLimitError) for answer in answers] == [False, True, False]
    check_nothing_left(client.engine, 2)


def test_a_question_that_is_given_up_while_it_waits_is_not_sent(server):
    client = client_of(server)

    async def talk():
        tasks = [asyncio.create_task(client.chat([TEA, document(f"{n}")], f"question {n}")) for n in range(3)]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(talk()) == [False, True, False]
    assert sent(server) == [0, 2]
    check_nothing_left(client.engine, 2)


def test_conversations_go_on_byte_for_byte(server):
    server.script = [good(usage=None)]
    client = client_of(server, max_wait_ms=20, max_context_tokens=300, token_counter=lambda text: len(text.split()))

    async def talk(name):
        prompts = []
        for turn in range(5):
            answer = await client.chat([TEA, document(f"{name}-{turn}")], f"turn {turn}", session_id=name)
            prompts.append(answer.prompt)
        return prompts

    async def all_at_once():
        return await asyncio.gather(*(talk(name) for name in "abc"))

    for prompts in asyncio.run(all_at_once()):
        grows = [longer[: len(shorter)] == shorter for shorter, longer in zip(prompts, prompts[1:], strict=False)]
        assert grows[0]
        assert not all(grows)  # the context window was full once
    assert len(server.requests) == 15
    check_nothing_left(client.engine, client.engine.stats().committed)


def test_parallel_agents_that_ask_at_once_land_on_one_replica(servers):
    clients = [openai.AsyncOpenAI(base_url=each.base_url, api_key="-", max_retries=0, timeout=20) for each in servers]
    engines = [silent(), silent()]
    router = AsyncReplicaRouter(clients, model="m", engines=engines, max_imbalance=8, max_wait_ms=WAIT)
    chains = [[TEA, MILK] if number % 2 == 0 else [SALT, RICE] for number in range(8)]
    answers = together(router, *([document(f"own-{n}"), *chain] for n, chain in enumerate(chains)))
    assert [sorted(sent(each)) for each in servers] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert sum(answer.plan.expected_reused_tokens > 0 for answer in answers) == 6
    for engine in engines:
        check_nothing_left(engine, 4)


def test_a_replica_that_fails_hands_its_window_over(servers):
    clients = [openai.AsyncOpenAI(base_url=each.base_url, api_key="-", max_retries=0, timeout=20) for each in servers]
    router = AsyncReplicaRouter(clients, model="m", max_imbalance=8, max_wait_ms=20)
    servers[0].script = [refusing(500)]
    answers = together(router, *([TEA, document(f"{n}")] for n in range(4)))
    assert [answer.answer for answer in answers] == ["Hello there"] * 4
    assert sorted(sent(servers[1])) == [0, 1, 2, 3]
    assert [status.outstanding for status in router.status()] == [0, 0]
    for engine, committed in zip(router.engines, (0, 4), strict=True):
        check_nothing_left(engine, committed)


def test_a_session_that_moves_keeps_its_history(servers):
    clients = [openai.AsyncOpenAI(base_url=each.base_url, api_key="-", max_retries=0, timeout=20) for each in servers]
    router = AsyncReplicaRouter(clients, model="m", max_wait_ms=20)

    async def talk():
        first = await router.chat([TEA], "turn 1", session_id="u")
        servers[0].script = [refusing(500)]
        second = await router.chat([TEA, MILK], "turn 2", session_id="u")
        return first, second, await router.chat([MILK, SALT], "turn 3", session_id="u")

    first, second, third = asyncio.run(talk())
    assert [sent(each) for each in servers] == [[1, 2], [2, 3]]
    assert second.prompt[: len(first.prompt)] == first.prompt
    assert third.prompt[: len(second.prompt)] == second.prompt
    assert len(second.plan.hints) == len(third.plan.hints) == 1
    for engine in router.engines:
        check_nothing_left(engine, engine.stats().committed)


def test_a_wrong_wait_is_refused(server):
    with pytest.raises(ConfigError, match="max_wait_ms=-1"):
        client_of(server, max_wait_ms=-1)
