"""The history of a chat as LangChain messages, context included, and what is needed to plan its turns again."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from contextpilot_core import Message
from contextpilot_core.checks import whole_number
from contextpilot_core.prompt import message_text
from contextpilot_integrations.recent import Recent
from contextpilot_integrations.serving.chat import (
    Entry,
    Held,
    asked_of,
    contained,
    read_usage,
    record_of,
    scale_of,
    usual_tokens,
    whole,
)

CONTEXT = "contextpilot"
"""Key in ``additional_kwargs`` of a user message of ours: its question and its documents. It is never sent."""

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system", "tool": "tool"}


class MessageHistory(Protocol):
    """What is used of a store of messages; every LangChain chat message history is one.

    Where it has them, asynchronous calls use ``aget_messages``, ``aadd_messages`` and ``aclear``.
    """

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages, oldest first."""

    def add_messages(self, messages: Sequence[BaseMessage], /) -> None:
        """Append messages."""

    def clear(self) -> None:
        """Remove all messages."""


GetHistory: TypeAlias = Callable[[str], MessageHistory]


class MemoryHistory:
    """The messages of one session, in this process; ``keep`` is called with it when it gets some."""

    def __init__(self, keep: Callable[["MemoryHistory"], None] = lambda history: None) -> None:
        self._messages, self._keep = tuple[BaseMessage, ...](), keep

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages, oldest first."""
        return list(self._messages)

    def add_messages(self, messages: Sequence[BaseMessage], /) -> None:
        """Append messages."""
        self._messages = (*self._messages, *messages)
        self._keep(self)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages = ()


class MemoryHistories:
    """Histories by session, the least recently used forgotten first; thread-safe. Call it with a session id."""

    def __init__(self, max_sessions: int) -> None:
        """Keep at most ``max_sessions``. Raises `ConfigError`."""
        whole_number("max_sessions", max_sessions, "1_000 is usual")
        self._known: Recent[str, MemoryHistory] = Recent(max_sessions)

    def __call__(self, session_id: str) -> MemoryHistory:
        """Return the history of a session; a new one, which is kept as soon as it holds something, for none."""
        return self._known.peek(session_id) or MemoryHistory(partial(self._known.put, session_id))


def save(
    history: MessageHistory,
    messages: Sequence[BaseMessage],
    held: Held,
    replaced: Sequence[BaseMessage] | None = None,
) -> None:
    """Append messages, if the session was not reset meanwhile; or put them in place of those that are ``replaced``.

    A store that fails between the two gets back what it had, as far as it takes it.
    """

    def write() -> None:
        if replaced is not None:
            history.clear()
        try:
            history.add_messages(messages)
        except BaseException:
            if replaced:
                with contained("giving a store back what it had"):
                    history.add_messages(replaced)
            raise

    if messages:
        held.record(write, history.clear)


async def aload(history: MessageHistory) -> list[BaseMessage]:
    """Return the messages."""
    if hasattr(history, "aget_messages"):
        return list(await history.aget_messages())
    return history.messages


async def asave(
    history: MessageHistory,
    messages: Sequence[BaseMessage],
    held: Held,
    replaced: Sequence[BaseMessage] | None = None,
) -> None:
    """Append or replace messages, as `save`."""
    if not hasattr(history, "aadd_messages") or not hasattr(history, "aclear"):
        return save(history, messages, held, replaced)

    async def write() -> None:
        if replaced is not None:
            await history.aclear()
        try:
            await history.aadd_messages(messages)
        except BaseException:
            if replaced:
                with contained("giving a store back what it had"):
                    await history.aadd_messages(replaced)
            raise

    if messages:
        await held.arecord(write, history.aclear)


def entry_of(message: BaseMessage) -> Entry:
    """Return a message as our chats read it: role and content, and what one of ours was planned from."""
    read, record = whole(as_openai(message)), message.additional_kwargs.get(CONTEXT)
    return Entry(read, asked_of(record, message_text(read)) if isinstance(message, HumanMessage) else None, message)


def message_of(entry: Entry) -> BaseMessage:
    """Return the message of an entry: as it was given, or a new user message with what it takes to plan it again."""
    if isinstance(entry.origin, BaseMessage):
        return entry.origin
    text = str(entry.message["content"]) if entry.message is not None else ""
    kept = {} if entry.asked is None else {CONTEXT: record_of(entry.asked, text)}
    return HumanMessage(text, additional_kwargs=kept)


def reported_scale(history: Sequence[Entry]) -> float:
    """Return what the model last reported for a prompt, per token that we had counted; 1 while it did not."""
    scale, usual = 1.0, 0
    for question, answer in pairwise(history):
        usual += usual_tokens(question.sent)
        if question.asked is not None and isinstance(answer.origin, AIMessage):
            told = read_usage(answer.origin).prompt_tokens
            scale = scale_of(told, question.asked.tokens, usual) or scale
    return scale


def as_sent(message: BaseMessage) -> BaseMessage:
    """Return a message as the model gets it: without what we keep in it, and made whole."""
    if CONTEXT in message.additional_kwargs:
        others = {key: value for key, value in message.additional_kwargs.items() if key != CONTEXT}
        message = message.model_copy(update={"additional_kwargs": others})
    return made_whole(message)


def made_whole(message: BaseMessage) -> BaseMessage:
    """Return a message whose texts can be sent (`whole`); the message itself where they can already."""
    given = {name: getattr(message, name, None) for name in ("content", "additional_kwargs", "tool_calls")}
    mended = {name: made for name, value in given.items() if (made := whole(value)) is not value}
    return message.model_copy(update=mended) if mended else message


def as_openai(message: BaseMessage) -> Message:
    """Return role and content, which is all that the engine looks at."""
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}
