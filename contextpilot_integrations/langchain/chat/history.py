"""The history of a chat as LangChain messages, context included, and what is needed to plan its turns again."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Protocol, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage

from contextpilot_core import ConfigError, ContextBlock, EngineConfig, Message

CONTEXT = "contextpilot"
"""Key in ``additional_kwargs`` of a user message of ours: its question and its documents. It is never sent."""

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


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
    """The messages of one session, in this process."""

    def __init__(self) -> None:
        self._messages: tuple[BaseMessage, ...] = ()

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages, oldest first."""
        return list(self._messages)

    def add_messages(self, messages: Sequence[BaseMessage], /) -> None:
        """Append messages."""
        self._messages = (*self._messages, *messages)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages = ()


class MemoryHistories:
    """Histories by session, the least recently used forgotten first; thread-safe. Call it with a session id."""

    def __init__(self, max_sessions: int) -> None:
        """Keep at most ``max_sessions``. Raises `ConfigError`."""
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise ConfigError(f"max_sessions={max_sessions!r} must be a whole number of at least 1; change it")
        self._limit = max_sessions
        self._known: OrderedDict[str, MemoryHistory] = OrderedDict()
        self._lock = Lock()

    def __call__(self, session_id: str) -> MemoryHistory:
        """Return the history of a session, a new one where there is none."""
        with self._lock:
            found = self._known.setdefault(session_id, MemoryHistory())
            self._known.move_to_end(session_id)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
            return found


def save(history: MessageHistory, messages: Sequence[BaseMessage], rewritten: bool) -> None:
    """Append messages; with ``rewritten`` they replace those that are there."""
    if messages and rewritten:
        history.clear()
    if messages:
        history.add_messages(messages)


async def aload(history: MessageHistory) -> list[BaseMessage]:
    """Return the messages."""
    if hasattr(history, "aget_messages"):
        return list(await history.aget_messages())
    return history.messages


async def asave(history: MessageHistory, messages: Sequence[BaseMessage], rewritten: bool) -> None:
    """Append or replace messages, as `save`."""
    if not hasattr(history, "aadd_messages") or not hasattr(history, "aclear"):
        return save(history, messages, rewritten)
    if messages and rewritten:
        await history.aclear()
    if messages:
        await history.aadd_messages(messages)


@dataclass(frozen=True)
class TurnContext:
    """What a user message of ours was made of.

    ``tokens``: what our counter said of the whole prompt, to be compared with what the model says. ``base``: digest of
    the history that its hints name, "" without such hints.
    """

    query: str
    blocks: tuple[ContextBlock, ...]
    tokens: int
    base: str = ""


def context_message(text: str, context: TurnContext, config: EngineConfig) -> HumanMessage:
    """Return the user message of a turn, with what it takes to plan the turn again."""
    # Only a renderer sees more of a block than its text; metadata may be large, and hold what a store cannot keep.
    whole = config.renderer is not None
    blocks = [asdict(block) if whole else {"text": block.text} for block in context.blocks]
    kept = {"query": context.query, "blocks": blocks, "tokens": context.tokens, "base": context.base}
    return HumanMessage(text, additional_kwargs={CONTEXT: kept})


def context_of(message: BaseMessage) -> TurnContext | None:
    """Return what a user message of ours was made of; None for any other message."""
    kept = message.additional_kwargs.get(CONTEXT)
    if not isinstance(message, HumanMessage) or not isinstance(kept, dict):
        return None
    blocks = tuple(ContextBlock(**block) for block in kept["blocks"])
    return TurnContext(kept["query"], blocks, kept["tokens"], kept.get("base", ""))


def as_sent(message: BaseMessage) -> BaseMessage:
    """Return a message as the model gets it: without what we keep in it."""
    if CONTEXT not in message.additional_kwargs:
        return message
    others = {key: value for key, value in message.additional_kwargs.items() if key != CONTEXT}
    return message.model_copy(update={"additional_kwargs": others})


def as_openai(message: BaseMessage) -> Message:
    """Return role and content, which is all that the engine looks at."""
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}


def split_turns(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[list[BaseMessage]]]:
    """Return what stands before the first user message, and the turns, each from a user message to the next."""
    head: list[BaseMessage] = []
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            turns.append([message])
        else:
            (turns[-1] if turns else head).append(message)
    return head, turns
