"""The messages of a conversation, whatever keeps them, and what the questions among them were planned from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from contextpilot_core import ContextBlock, Message


@dataclass(frozen=True)
class Asked:
    """What a user message of ours was planned from, so that it can be planned again.

    ``parts``: what the question had besides text (images ...). ``order``: that of its plan, None before it was planned.
    ``base``: digest of the history that its hints name, "" without such hints. ``tokens``: what our counter said of the
    whole prompt, to be compared with what the server says.
    """

    query: str
    blocks: tuple[str | ContextBlock, ...]
    parts: tuple[Message, ...] = ()
    order: tuple[int, ...] | None = None
    base: str = ""
    tokens: int = 0


@dataclass(frozen=True)
class Entry:
    """One message of a conversation. ``asked``: for user messages of ours; ``origin``: the framework's own message.

    ``text`` is the context, note and question of a message of ours; the engine is shown its other parts as a message
    of their own, so that it recognises the text.
    """

    message: Message | None
    asked: Asked | None = None
    origin: Any = None

    @property
    def is_question(self) -> bool:
        """Whether a turn begins here."""
        return self.message is None or self.message["role"] == "user"

    @property
    def read(self) -> tuple[Message, ...]:
        """What the engine is shown."""
        parts = self.asked.parts if self.asked is not None else ()
        alone: tuple[Message, ...] = ({"role": "user", "content": list(parts)},) if parts else ()
        return alone if self.message is None else (self.message, *alone)

    @property
    def sent(self) -> tuple[Message, ...]:
        """What the server gets: one message with text and other parts."""
        parts = self.asked.parts if self.asked is not None else ()
        if self.message is None or not parts:
            return self.read
        return ({**self.message, "content": [{"type": "text", "text": self.message["content"]}, *parts]},)


def read(entries: Iterable[Entry]) -> list[Message]:
    """Return all messages as the engine is shown them."""
    return [message for entry in entries for message in entry.read]


def sent(entries: Iterable[Entry]) -> list[Message]:
    """Return all messages as the server gets them."""
    return [message for entry in entries for message in entry.sent]


def split_turns(entries: Sequence[Entry]) -> tuple[list[Entry], list[list[Entry]]]:
    """Return what stands before the first question, and the turns, each from a question to the next."""
    head: list[Entry] = []
    turns: list[list[Entry]] = []
    for entry in entries:
        if entry.is_question:
            turns.append([entry])
        else:
            (turns[-1] if turns else head).append(entry)
    return head, turns
