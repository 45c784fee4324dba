"""What a LlamaIndex memory holds of a chat with context: each question with its documents, as they were sent.

A user message of ours carries in ``additional_kwargs`` what it was planned from. So it can be planned again when the
messages before it change, by another process, too: a hint must never name what is gone. It is not sent to the model.
"""

import operator
from collections.abc import Iterable

from llama_index.core.base.llms.types import ChatMessage, ContentBlock, MessageRole, TextBlock

from contextpilot_core import Message
from contextpilot_core.prompt import message_text
from contextpilot_integrations.serving.chat import Entry, as_rendered, asked_of, record_of, whole

RECORD = "contextpilot"


def question_of(message: ChatMessage) -> str:
    """Return what the user asked, without the documents that went along; of other messages, their text."""
    asked = entry_of(message).asked
    return (message.content or "") if asked is None else asked.query


def openai_form(messages: Iterable[ChatMessage]) -> list[Message]:
    """Return messages as the engine reads them. A message of one text is that text, others are lists of parts."""
    result: list[Message] = []
    for message in messages:
        parts = [
            {"type": "text", "text": block.text} if isinstance(block, TextBlock) else block.model_dump(mode="json")
            for block in message.blocks
        ]
        single = len(parts) == 1 and isinstance(message.blocks[0], TextBlock)
        result.append({"role": message.role.value, "content": parts[0]["text"] if single else parts})
    return result


def entry_of(message: ChatMessage) -> Entry:
    """Return a message as our chats read it: its OpenAI form, and what one of ours was planned from."""
    (read,), record = whole(openai_form([message])), message.additional_kwargs.get(RECORD)
    asked = asked_of(record, message_text(read)) if message.role == MessageRole.USER else None
    return Entry(as_rendered(read, asked), asked, message)


def message_of(entry: Entry) -> ChatMessage:
    """Return the message of an entry: as it was given, or a new user message with what it takes to plan it again."""
    if isinstance(entry.origin, ChatMessage):
        return entry.origin
    text = str(entry.sent[0]["content"]) if entry.message is not None else ""
    kept = {} if entry.asked is None else {RECORD: record_of(entry.asked, text)}
    return ChatMessage(role=MessageRole.USER, content=text, additional_kwargs=kept)


def as_sent(message: ChatMessage) -> ChatMessage:
    """Return the message as the model gets it: without our record, and made whole."""
    if RECORD in message.additional_kwargs:
        others = {key: value for key, value in message.additional_kwargs.items() if key != RECORD}
        message = message.model_copy(update={"additional_kwargs": others})
    return made_whole(message)


def made_whole(message: ChatMessage) -> ChatMessage:
    """Return a message whose texts can be sent (`whole`); the message itself where they can already."""
    blocks, known = [_mended(block) for block in message.blocks], whole(message.additional_kwargs)
    if known is message.additional_kwargs and all(map(operator.is_, blocks, message.blocks)):
        return message
    return message.model_copy(update={"blocks": blocks, "additional_kwargs": known})


def as_asked(message: ChatMessage) -> ChatMessage:
    """Return the message without the documents that went along with a question of ours."""
    asked = entry_of(message).asked
    return made_whole(message) if asked is None else ChatMessage(role=message.role, content=asked.query)


def _mended(block: ContentBlock) -> ContentBlock:
    mended = {name: made for name, value in vars(block).items() if (made := whole(value)) is not value}
    return block.model_copy(update=mended) if mended else block
