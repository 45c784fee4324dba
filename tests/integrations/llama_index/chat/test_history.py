"""The messages of a chat in LlamaIndex's form: what a memory holds of them, and what comes back from a store."""

import json

import pytest

from contextpilot_core import ContextBlock
from contextpilot_integrations.serving.chat import Asked, Entry
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock  # noqa: E402

from contextpilot_integrations.llama_index import question_of  # noqa: E402
from contextpilot_integrations.llama_index.chat.history import (  # noqa: E402
    RECORD,
    as_sent,
    entry_of,
    message_of,
    openai_form,
)
from tests.integrations.llama_index_chats import WAYS, stored  # noqa: E402
from tests.integrations.llama_index_fakes import D1, D2, D3, D4, document  # noqa: E402

ASKED = Asked("q", (ContextBlock(text="tea"),), order=(0,), base="b", tokens=3)
TEXT = "[Doc 1]\n===\ntea\n===\n\nq"
OURS = Entry({"role": "user", "content": TEXT}, ASKED)


# --- as the engine reads them --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (ChatMessage(role="user", content="hello"), "hello"),
        (ChatMessage(role="assistant", content=None), []),
        (ChatMessage(role="tool", blocks=[TextBlock(text="t")]), "t"),
        (
            ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")]),
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
    ],
)
def test_one_text_is_a_text_and_all_else_is_a_list(message, content):
    assert openai_form([message]) == [{"role": message.role.value, "content": content}]


def test_a_picture_is_read_the_same_before_and_after_a_store():
    picture = ChatMessage(role="user", blocks=[TextBlock(text="see"), ImageBlock(url="http://x/1.png")])
    (form,) = openai_form([picture])
    assert form["content"][0] == {"type": "text", "text": "see"}
    assert form["content"][1]["block_type"] == "image"
    json.dumps(form)
    assert openai_form(stored([picture])) == [form]


# --- messages and entries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(MessageRole))
def test_a_message_of_others_comes_back_itself(role):
    message = ChatMessage(role=role, content="t")
    entry = entry_of(message)
    assert (entry.message, entry.asked) == ({"role": role.value, "content": "t"}, None)
    assert message_of(entry) is message
    assert question_of(message) == "t"
    assert as_sent(message) is message


def test_a_message_of_ours_is_made_once_and_read_again():
    message = message_of(OURS)
    assert (message.role, message.content, question_of(message)) == (MessageRole.USER, TEXT, "q")
    (again,) = stored([message])
    assert entry_of(again) == Entry(OURS.message, ASKED, again)
    assert message_of(entry_of(again)) is again


def test_the_whole_block_is_kept():
    entry = Entry(OURS.message, Asked("q", (ContextBlock(text="tea", id="n1"),), order=(0,)))
    (again,) = stored([message_of(entry)])
    assert entry_of(again).asked == entry.asked


def test_a_question_without_text_or_record_is_a_user_message():
    assert message_of(Entry(None, Asked("", ()))).content == ""
    assert message_of(Entry({"role": "user", "content": "t"})) == ChatMessage(role="user", content="t")


def test_the_record_stays_here():
    message = message_of(OURS)
    message.additional_kwargs["name"] = "ann"
    assert as_sent(message) == ChatMessage(role="user", content=TEXT, additional_kwargs={"name": "ann"})
    assert RECORD in message.additional_kwargs


def test_only_a_user_message_can_be_a_question_of_ours():
    kept = message_of(OURS).additional_kwargs
    assert entry_of(ChatMessage(role="assistant", content=TEXT, additional_kwargs=kept)).asked is None


BAD = ["x", {}, {"query": "q"}, {"query": "q", "blocks": [{"text": 5}], "tokens": 1, "base": "b"}, [1], None]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_is_not_ours_is_no_record(talk, way):
    history = [ChatMessage(role="user", content="hello", additional_kwargs={RECORD: record}) for record in BAD]
    chat = talk(way)
    chat("qA", chat_history=history)
    assert [question_of(message) for message in chat.history[: len(BAD)]] == ["hello"] * len(BAD)
    assert all(RECORD not in message.additional_kwargs for message in chat.llm.messages[0])


@pytest.mark.parametrize("cut", [False, True])
def test_what_an_application_took_out_of_a_message_does_not_come_back(talk, cut):
    """Neither when the window is full, nor when what stood before the message is gone."""
    table = {"q1": [D1, D2], "q2": [D3], "q3": [D2], "q4": [D4, document("D6"), document("D7")]}
    chat = talk(table=table, max_context_tokens=100_000 if cut else 640)
    for question in ("q1", "q2", "q3"):
        chat(question)
    messages = chat.history
    messages[2] = messages[2].model_copy(update={"blocks": [TextBlock(text="[removed]")]})
    chat("q4", chat_history=messages[2:] if cut else messages)
    sent = chat.llm.messages[-1]
    assert sent[0].content == "[removed]"
    assert (D1 in chat.prompts[-1], D2 in chat.prompts[-1], D3 in chat.prompts[-1]) == (False, True, False)
    assert [message.content for message in chat.history[:-1]] == [message.content for message in sent]
    assert question_of(messages[2]) == "[removed]"


# --- halves of characters ------------------------------------------------------------------------------------------


def test_what_a_memory_brings_is_sent_whole_and_stays_as_it_is():
    """Another application may have written half a character there, which no client library can send."""
    blocks = [TextBlock(text="a \ud83d"), TextBlock(text="\ud83d\ude00"), TextBlock(text="tea")]
    theirs = ChatMessage(role="assistant", blocks=blocks, additional_kwargs={"tool_calls": [{"args": "\udfff"}]})
    sent = as_sent(theirs)
    assert [block.text for block in sent.blocks] == ["a \ufffd", "\U0001f600", "tea"]
    assert sent.additional_kwargs == {"tool_calls": [{"args": "\ufffd"}]}
    assert theirs.blocks[0].text == "a \ud83d"
    assert openai_form([sent])[0] == entry_of(theirs).message
    assert as_sent(sent) is sent
