"""Histories of conversations with their context, append-only until the window is full; many of them, bounded."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Any, Generic, TypeVar

from contextpilot_core import ConfigError, ContextRequest, Message, Plan, ReuseEngine
from contextpilot_integrations.serving.chat import TokenCount, message_tokens

SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True)
class PastTurn:
    """One turn: the request that was planned and its order, the messages that it added, and the answer.

    ``parts``: what the question had besides text (images ...). The engine is shown them as a message of their own, so
    that it recognises the context; the server gets one message with both.
    """

    request: ContextRequest
    order: tuple[int, ...]
    context: tuple[Message, ...]
    parts: tuple[Message, ...]
    answer: Message

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the engine is shown."""
        return (*self.context, *_parts_alone(self.parts), self.answer)

    @property
    def sent(self) -> tuple[Message, ...]:
        """What the server gets."""
        return (*_joined(self.context, self.parts), self.answer)


@dataclass(frozen=True)
class History:
    """The messages of a conversation: a head (system message or nothing) and whole turns, oldest first."""

    head: tuple[Message, ...] = ()
    turns: tuple[PastTurn, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages as the engine is shown them, in order."""
        return (*self.head, *(message for turn in self.turns for message in turn.messages))

    @property
    def sent(self) -> tuple[Message, ...]:
        """All messages as the server gets them, in order."""
        return (*self.head, *(message for turn in self.turns for message in turn.sent))

    def prompt(self, plan: Plan, parts: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages to send for ``plan``, which was made on top of this history, with ``parts`` behind it."""
        head, context = self._split(plan)
        return (*History(head, self.turns).sent, *_joined(context, parts))

    def extended(self, plan: Plan, parts: tuple[Message, ...], answer: Message) -> "History":
        """Return the history after a turn: ``plan`` was made on top of this history, ``answer`` came back."""
        head, context = self._split(plan)
        return History(head, self.turns).with_turn(PastTurn(plan.request, plan.order, context, parts, answer))

    def with_turn(self, turn: PastTurn) -> "History":
        """Return the history with a turn behind it, as it is."""
        return replace(self, turns=(*self.turns, turn))

    def again(self, turn: PastTurn) -> ContextRequest:
        """Return the request of a turn, to be planned on top of this history."""
        return replace(turn.request, messages=self.messages, request_id=None)

    def trimmed(
        self,
        tokens: float,
        size: Callable[[tuple[Message, ...]], float],
        again: Callable[["History"], "History"],
    ) -> "History":
        """Return the history without its oldest turns, as few as bring ``size(messages)`` to ``tokens`` or less.

        At least one turn goes, unless there is none. What stays is planned ``again``: its hints may name what is gone,
        and a hint must never dangle.
        """
        kept = self
        while kept.turns:
            kept = again(History(self.head, kept.turns[1:]))
            if size(kept.sent) <= tokens:
                break
        return kept

    def _split(self, plan: Plan) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """Return the head of a plan's messages, and what they hold behind this history."""
        head = self.head or tuple(message for message in plan.messages[:1] if message.get("role") in SYSTEM_ROLES)
        return head, plan.messages[len(History(head, self.turns).messages) :]


def _parts_alone(parts: tuple[Message, ...]) -> tuple[Message, ...]:
    return ({"role": "user", "content": list(parts)},) if parts else ()


def _joined(context: tuple[Message, ...], parts: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the user message of a turn: its text, and the other parts of the question behind it."""
    if not parts or not context:
        return context or _parts_alone(parts)
    *before, last = context
    return (*before, {**last, "content": [{"type": "text", "text": last["content"]}, *parts]})


@dataclass
class Conversation:
    """One session: its history, and how far the token counter is off for it.

    Changed by one turn at a time. ``scale``: reported prompt tokens per counted token, 1 until a server reported.
    ``engine``: the one that planned the history, None before the first turn.
    """

    history: History = field(default_factory=History)
    scale: float = 1.0
    engine: ReuseEngine | None = None

    def size(self, messages: tuple[Message, ...], count: TokenCount) -> float:
        """Return the expected tokens of ``messages`` as a prompt."""
        return self.scale * sum(message_tokens(message, count) for message in messages)

    def learn_scale(self, messages: tuple[Message, ...], prompt_tokens: int | None, count: TokenCount) -> None:
        """Compare a prompt with what the server said about it."""
        counted = sum(message_tokens(message, count) for message in messages)
        if prompt_tokens and counted:
            self.scale = prompt_tokens / counted


LockT = TypeVar("LockT")


@dataclass
class Seat(Generic[LockT]):
    """A conversation, the lock that serialises its turns, and who has it now (see ``Sessions.seat``)."""

    lock: LockT
    conversation: Conversation = field(default_factory=Conversation)
    owner: Any = None
    waiting: int = 0


class Sessions(Generic[LockT]):
    """Conversations by (namespace, session id), the least recently used forgotten first; thread-safe.

    ``new_lock`` makes the lock of one conversation: a thread's or a task's.
    """

    def __init__(self, new_lock: Callable[[], LockT], limit: int) -> None:
        """Keep at most ``limit`` conversations, not counting those in use. Raises `ConfigError`."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ConfigError(f"max_sessions={limit!r} must be a whole number of at least 1; change it")
        self._new_lock = new_lock
        self._limit = limit
        self._seats: OrderedDict[tuple[str, str], Seat[LockT]] = OrderedDict()
        self._guard = Lock()

    @contextmanager
    def seat(self, namespace: str, session_id: str | None) -> Iterator[Seat[LockT]]:
        """Yield the seat of a session, which stays known while it is held; a new one each time for None."""
        if session_id is None:
            yield Seat(self._new_lock())
            return
        key = namespace, session_id
        with self._guard:
            seat = self._seats.setdefault(key, Seat(self._new_lock()))
            self._seats.move_to_end(key)
            seat.waiting += 1
            self._forget_oldest()
        try:
            yield seat
        finally:
            with self._guard:
                seat.waiting -= 1
                self._forget_oldest()

    def forget(self, namespace: str, session_id: str) -> bool:
        """Forget one conversation; a turn under way ends undisturbed. Returns whether there was one."""
        with self._guard:
            return self._seats.pop((namespace, session_id), None) is not None

    def history(self, namespace: str, session_id: str) -> tuple[Message, ...]:
        """Return the messages of a conversation; none when it is not known."""
        with self._guard:
            seat = self._seats.get((namespace, session_id))
            return seat.conversation.history.sent if seat else ()

    def __len__(self) -> int:
        return len(self._seats)

    def _forget_oldest(self) -> None:
        for key in list(islice(self._seats, max(0, len(self._seats) - self._limit))):
            if not self._seats[key].waiting:
                del self._seats[key]
