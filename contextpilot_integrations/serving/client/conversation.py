"""The conversations of a client: their messages with the context, and how many tokens the server counts for ours."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from contextpilot_core import Message, Plan, ReuseEngine
from contextpilot_core.checks import whole_number
from contextpilot_integrations.recent import Recent
from contextpilot_integrations.serving.chat import Entry, Held, TurnLocks, sent
from contextpilot_integrations.serving.chat.locks import Key


@dataclass(eq=False)
class Conversation:
    """One session; changed by one turn at a time, which has it from `Sessions`.

    ``scale``: the server's prompt tokens per counted token, 1 until it reported. ``engine``: the one that planned the
    last turn, None before the first.
    """

    history: tuple[Entry, ...] = ()
    scale: float = 1.0
    engine: ReuseEngine | None = None
    last_plan: Plan | None = None


class Sessions:
    """Conversations by (namespace, session id), the least recently used of a namespace forgotten first; thread-safe."""

    def __init__(self, limit: int) -> None:
        """Keep at most ``limit`` conversations per namespace, not counting those in use. Raises `ConfigError`."""
        whole_number("max_sessions", limit, "1_000 is usual")
        self._locks = TurnLocks()
        self._known: Recent[Key, Conversation] = Recent(limit, self._locks.is_held, group=itemgetter(0))

    @contextmanager
    def held(self, namespace: str, session_id: str | None) -> Iterator[tuple[Conversation, Held]]:
        """Hold a session for one turn of this thread; a new one each time for None. Raises as `TurnLocks.hold`."""
        with self._locks.hold(session_id, namespace) as held, self._used(namespace, session_id, held) as conversation:
            yield conversation, held

    @asynccontextmanager
    async def aheld(self, namespace: str, session_id: str | None) -> AsyncIterator[tuple[Conversation, Held]]:
        """Hold a session for one turn of this task, as `held`."""
        async with self._locks.ahold(session_id, namespace) as held:
            with self._used(namespace, session_id, held) as conversation:
                yield conversation, held

    def forget(self, namespace: str, session_id: str) -> bool:
        """Forget one conversation; a turn under way may end, and is not kept. Returns whether there was one."""
        self._locks.void(session_id, namespace)
        return self._known.pop((namespace, session_id)) is not None

    def find(self, namespace: str, session_id: str) -> Conversation:
        """Return a conversation for reading; an empty one when it is not known."""
        return self._known.peek((namespace, session_id)) or Conversation()

    def history(self, namespace: str, session_id: str) -> tuple[Message, ...]:
        """Return the messages of a conversation as they were sent; none when it is not known."""
        return tuple(deepcopy(sent(self.find(namespace, session_id).history)))

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def _used(self, namespace: str, session_id: str | None, held: Held) -> Iterator[Conversation]:
        """Give a conversation for one turn; it is kept from its first answer on, unless it was forgotten meanwhile."""
        if session_id is None:
            yield Conversation()
            return
        key = namespace, session_id
        conversation = self._known.peek(key) or Conversation()
        yield conversation
        if conversation.history:
            held.record(partial(self._known.put, key, conversation), partial(self._known.pop, key))
