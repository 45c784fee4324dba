"""Conversations: their prompts only grow, turns wait for each other, old sessions are forgotten."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import RequestError
from tests.integrations.chat_server import good, refusing
from tests.integrations.serving.client.faces import (
    IMAGE,
    MILK,
    SALT,
    TEA,
    TEXT,
    Face,
    contents,
    document,
    openai,
    words,
)


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
