"""Conversations: their prompts only grow, turns wait for each other, old sessions are forgotten."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import ConfigError, RequestError, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.chat import Entry
from contextpilot_integrations.serving.client.conversation import Sessions
from tests.integrations.chat_server import good, refusing
from tests.integrations.serving.client.faces import (
    IMAGE,
    MILK,
    SALT,
    TEA,
    TEXT,
    Face,
    RouterFace,
    contents,
    document,
    openai,
    words,
)

SAID = Entry({"role": "user", "content": "late"})


def answered(sessions, session_id):
    """Have one turn of a session that is answered."""
    with sessions.held("default", session_id) as (conversation, _):
        conversation.history = (*conversation.history, SAID)


def test_each_prompt_starts_with_all_of_the_one_before(chat, server):
    results = [chat(blocks, f"turn {n}", session_id="u", instructions="Sys.") for n, blocks in enumerate(TURNS)]
    for before, after in zip(results, results[1:], strict=False):
        head = (*before.plan.messages, before.message)
        assert after.plan.messages[: len(head)] == head
        assert len(after.plan.messages) == len(head) + 1
    assert [message["role"] for message in server.requests[-1]["messages"]][:3] == ["system", "user", "assistant"]
    assert [len(result.plan.hints) for result in results] == [0, 1, 2]
    assert TEA not in results[1].plan.messages[-1]["content"]


TURNS = [[TEA, MILK], [MILK, SALT], [SALT, TEA]]


def test_sessions_and_namespaces_are_apart(chat):
    chat([TEA], "one", session_id="u")
    for other in ({"session_id": "v"}, {"session_id": "u", "namespace": "tenant"}, {}):  # D2
        result = chat([TEA], "one", **other)
        assert len(result.plan.messages) == 1
        assert not result.plan.hints
    assert len(chat.client.history("u")) == len(chat.client.history("u", namespace="tenant")) == 2


def test_a_conversation_has_one_system_message(chat, server):
    chat([TEA], "one", session_id="u", instructions="Be brief.")
    with pytest.raises(RequestError, match="differ from the system message"):
        chat([TEA], "two", session_id="u", instructions="Be long.")
    for instructions in ("Be brief.", ""):
        messages = chat([TEA], "two", session_id="u", instructions=instructions).plan.messages
        assert [message["role"] for message in messages].count("system") == 1
    assert len(server.requests) == 3


def test_the_least_recently_used_session_is_forgotten(server):
    face = Face(server, max_sessions=2)
    for name in ("a", "b", "a", "c"):
        face([TEA], "?", session_id=name)
    assert [len(face.client.history(name)) for name in "abc"] == [4, 0, 2]


def test_a_full_window_drops_the_oldest_turns_and_sends_their_blocks_again(server):
    face = Face(server, max_context_tokens=600, token_counter=words)
    server.script = [good(usage=None)]
    results = [face([document(name), TEA], f"turn {name}", session_id="u") for name in "abcdefghijk"]
    sizes = [sum(len(text.split()) for text in contents(result.plan.messages)) for result in results]
    assert max(sizes) <= 600
    cuts = [n for n in range(1, 11) if len(results[n].plan.messages) <= len(results[n - 1].plan.messages)]
    assert cuts  # the window was full at least once
    for n in cuts:
        history = results[n].plan.messages[:-1]
        assert sum(len(text.split()) for text in contents(history)) <= 300
        assert [message["role"] for message in history] == ["user", "assistant"] * (len(history) // 2)
        first = n - len(history) // 2  # whole turns, the last ones, each with its question and its document
        for turn, message in zip("abcdefghijk"[first:n], history[::2], strict=True):
            assert message["content"].endswith(f"turn {turn}")
            assert document(turn) in message["content"]
        # what was said above of a dropped document is said again in full: no hint names what is gone
        assert "See [Doc" not in "".join(contents(history[:1]))
    for result in results:
        shown = sum(TEA in text for text in contents(result.plan.messages))
        assert shown == 1  # never lost, never twice


def test_the_system_message_survives_a_full_window(server):
    face = Face(server, max_context_tokens=200, token_counter=words)
    server.script = [good(usage=None)]
    for name in "abcd":
        result = face([document(name)], "?", session_id="u", instructions="Keep me.")
    assert contents(result.plan.messages)[0] == "Keep me."


def test_a_failed_turn_does_not_cut_the_history(server):
    face = Face(server, max_context_tokens=100, token_counter=words)
    server.script = [good(usage=None), refusing(500), good(usage=None)]
    face([TEA], "?", session_id="u")
    before = face.client.history("u")
    with pytest.raises(openai.InternalServerError):
        face([MILK], "?", session_id="u")
    assert face.client.history("u") == before


def test_calls_of_one_session_wait_for_each_other(server):
    face = Face(server)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: face([TEA, document(str(n))], f"turn {n}", session_id="u"), range(8)))
    by_length = sorted(results, key=lambda result: len(result.plan.messages))
    assert [len(result.plan.messages) for result in by_length] == list(range(1, 16, 2))
    for before, after in zip(by_length, by_length[1:], strict=False):
        assert after.plan.messages[: len(before.plan.messages)] == before.plan.messages
    face.engine.check_integrity()


def test_other_sessions_do_not_wait(server):
    release, arrived = threading.Event(), threading.Event()

    def slow(exchange):
        arrived.set()
        release.wait(10)
        good()(exchange)

    server.script = [slow, good()]
    face = Face(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(face, [TEA], "?", session_id="slow")
        assert arrived.wait(10)
        assert face([TEA], "?", session_id="fast").answer == "Hello there"
        assert not waiting.done()
        release.set()
        assert waiting.result(10).answer == "Hello there"


def test_documents_beside_an_image_are_known_to_later_turns(chat, server):
    parts = [TEXT, {**IMAGE, "image_url": dict(IMAGE["image_url"])}]
    first = chat([TEA, MILK], parts, session_id="u")
    parts[1]["image_url"]["url"] = "changed later"
    second = chat([MILK, SALT], "And salt?", session_id="u")
    third = chat([SALT], [IMAGE], session_id="u")
    assert [hint.label for hint in second.plan.hints] == [2]
    assert "[Doc 3]" in second.plan.text
    assert third.plan.text == "See [Doc 3] above."
    assert server.requests[1]["messages"][:2] == [first.prompt[0], first.message]
    assert server.requests[2]["messages"][:4] == [*second.prompt, second.message]
    assert chat.client.history("u") == (*third.prompt, third.message)
    assert server.requests[1]["messages"][0]["content"][2] == IMAGE


def test_a_full_window_keeps_the_parts_of_the_turns_that_stay(server):
    face = Face(server, max_context_tokens=200, token_counter=words)
    server.script = [good(usage=None)]
    for name in "abcd":
        result = face([document(name)], [{"type": "text", "text": f"turn {name}"}, IMAGE], session_id="u")
    assert len(result.prompt) < 7
    for turn, message in zip("abcd"[-(len(result.prompt) + 1) // 2 :], result.prompt[::2], strict=True):
        assert message["content"][1:] == [{"type": "text", "text": f"turn {turn}"}, IMAGE]
        assert document(turn) in message["content"][0]["text"]


# --- sessions by themselves ----------------------------------------------------------------------------------------


def used(sessions, *names, namespace="default"):
    for name in names:
        with sessions.held(namespace, name) as (conversation, _):
            conversation.history = (Entry({"role": "user", "content": name}),)


def known(sessions, names):
    return "".join(name for name in names if sessions.history("default", name))


def test_a_session_is_the_same_conversation_each_time():
    sessions = Sessions(2)
    with sessions.held("default", "u") as (first, _):
        first.history = (SAID,)
    with sessions.held("default", "u") as (again, _), sessions.held("other", "u") as (other, _):
        assert again is first
        assert other is not first
    assert sessions.find("default", "u") is first


def test_a_turn_that_was_not_answered_leaves_no_conversation():
    sessions = Sessions(2)
    with sessions.held("default", "u") as (first, _):
        pass
    assert len(sessions) == 0
    assert not sessions.forget("default", "u")
    with sessions.held("default", "u") as (again, _):
        assert again is not first


def test_a_session_that_fails_forgets_no_other():
    sessions = Sessions(1)
    answered(sessions, "good")
    with pytest.raises(ZeroDivisionError), sessions.held("default", "bad"):
        raise ZeroDivisionError
    assert len(sessions.history("default", "good")) == 1


def test_no_session_is_a_new_conversation_each_time():
    sessions = Sessions(2)
    with sessions.held("default", None) as (first, _), sessions.held("default", None) as (second, _):
        assert first is not second
    assert len(sessions) == 0


def test_what_was_used_longest_ago_goes_first():
    sessions = Sessions(2)
    used(sessions, "a", "b", "a", "c")
    assert known(sessions, "abc") == "ac"
    assert len(sessions) == 2


def test_reading_is_no_use():
    sessions = Sessions(2)
    used(sessions, "a", "b")
    sessions.find("default", "a")
    sessions.history("default", "a")
    used(sessions, "c")
    assert known(sessions, "abc") == "bc"


def test_looking_for_an_unknown_session_makes_none():
    sessions = Sessions(2)
    assert sessions.history("default", "a") == ()
    assert sessions.find("default", "a").last_plan is None
    assert len(sessions) == 0


def test_sessions_in_use_are_not_forgotten():
    sessions = Sessions(1)
    used(sessions, "a")
    with sessions.held("default", "a"):
        used(sessions, "b", "c")
        assert known(sessions, "abc") == "ac"
    used(sessions, "d")
    assert known(sessions, "abcd") == "d"


def test_forgetting_tells_whether_there_was_one_and_spares_other_namespaces():
    sessions = Sessions(3)
    used(sessions, "a")
    used(sessions, "a", namespace="tenant")
    assert sessions.forget("default", "a") is True
    assert sessions.forget("default", "a") is False
    assert sessions.history("tenant", "a") == ({"role": "user", "content": "a"},)


def test_a_turn_under_way_keeps_its_conversation_when_it_is_forgotten():
    sessions = Sessions(3)
    for _ in range(2):  # the first time it is not known yet, and not kept either
        with sessions.held("default", "a") as (conversation, _):
            conversation.history = (SAID,)
            assert not sessions.forget("default", "a")
        assert sessions.history("default", "a") == ()
    answered(sessions, "a")
    with sessions.held("default", "a") as (conversation, _):
        assert sessions.forget("default", "a")
        conversation.history = (SAID, SAID)
    assert sessions.history("default", "a") == ()
    with sessions.held("default", "a") as (fresh, _):
        assert fresh is not conversation


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "9", None])
def test_a_limit_is_a_whole_number_of_at_least_one(limit):
    with pytest.raises(ConfigError, match="max_sessions="):
        Sessions(limit)


def test_a_thread_and_a_task_of_one_session_wait_for_each_other():
    sessions, entered, inside, release = Sessions(3), [], threading.Event(), threading.Event()

    def in_a_thread():
        with sessions.held("default", "u"):
            inside.set()
            release.wait(10)
            entered.append("thread")

    async def in_a_task():
        async with sessions.aheld("default", "u"):
            entered.append("task")

    async def both():
        thread = asyncio.create_task(asyncio.to_thread(in_a_thread))
        await asyncio.to_thread(inside.wait, 10)
        task = asyncio.create_task(in_a_task())
        async with sessions.aheld("default", "v"):  # another one is free meanwhile
            entered.append("other")
        release.set()
        await asyncio.gather(thread, task)

    asyncio.run(both())
    assert entered == ["other", "thread", "task"]


def test_an_error_in_a_turn_frees_its_session():
    sessions = Sessions(3)
    with pytest.raises(ValueError, match="inside"), sessions.held("default", "u"):
        raise ValueError("inside")
    used(sessions, "u")
    assert known(sessions, "u") == "u"


def test_sessions_of_one_namespace_make_no_other_forget():
    sessions = Sessions(2)
    used(sessions, "a", "b")
    used(sessions, *"cdefgh", namespace="other")
    assert known(sessions, "ab") == "ab"
    assert len(sessions) == 4


# --- what the engine has forgotten ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["one server", "windows", "a router", "a router of tasks"])
@pytest.mark.parametrize("forgets", ["while it waits for the headers", "an hour later"])
def test_no_label_stands_twice_when_the_engine_forgot_the_messages(servers, loop, kind, forgets):
    clock = ManualClock()

    def late(exchange):
        clock.advance(61)  # longer than a plan may be in flight
        good()(exchange)

    engines = [ReuseEngine(clock=clock) for _ in servers]
    if kind.startswith("a router"):
        face = RouterFace(servers, loop if "tasks" in kind else None, engines=engines)
    else:
        windows = {"max_wait_ms": 1} if kind == "windows" else {}
        face = Face(servers[0], asynchronous=bool(windows), loop=loop, engine=engines[0], **windows)
    for server in servers:
        server.script = [late if forgets.startswith("while") else good()]
    for question in ("one?", "two?", "three?"):
        result = face([TEA, MILK], question, session_id="u")
        clock.advance(3_601 if forgets == "an hour later" else 0)
    text = "\n".join(message["content"] for message in result.prompt)
    assert [text.count(f"[Doc {n}]\n") for n in (1, 2, 3)] == [1, 1, 0]
    assert (text.count(TEA), text.count(MILK)) == (1, 1)
