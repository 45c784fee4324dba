"""What all clients share: everything but the sending, and how their calls wait for each other."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Generic, TypeAlias

from contextpilot_core import ConfigError, ContextBlock, Message, Plan, RequestError, RequestTypeError, ReuseEngine
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.conversation import LockT, Seat, Sessions
from contextpilot_integrations.serving.client.replicas import Attempt, Replicas
from contextpilot_integrations.serving.client.turn import Question, Turn, Window
from contextpilot_integrations.session import current_session

Blocks: TypeAlias = Iterable[str | ContextBlock]
Query: TypeAlias = str | Sequence[Mapping[str, Any]]


class Chats(Generic[LockT]):
    """What all clients share: everything but the sending."""

    def __init__(
        self,
        replicas: Replicas,
        model: str,
        sessions: Sessions[LockT],
        window: Window,
        clock: Callable[[], float],
        tenants: Tenants | None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigError(f"model={model!r} must be the name under which the server knows its model; give it")
        if tenants is not None and not isinstance(tenants, Tenants):
            raise ConfigError(f"tenants is a {type(tenants).__name__}; it must be a Tenants, or None for no salts")
        self.replicas, self.sessions = replicas, sessions
        self._model, self._window, self._clock, self._tenants = model, window, clock, tenants

    def question(
        self,
        blocks: Blocks,
        query: Query,
        session_id: str | None,
        instructions: str,
        namespace: str,
        options: dict[str, Any],
    ) -> Question:
        """Check what the engine does not; the question of a chat."""
        parts = _parts(query)
        return Question(
            blocks=tuple(blocks) if isinstance(blocks, Iterator) else blocks,
            query="" if parts else query,  # type: ignore[arg-type]  # what is neither, the engine refuses
            parts=parts,
            instructions=instructions,
            session_id=current_session() if session_id is None else session_id,
            namespace=namespace,
            options=self._options(namespace, options),
        )

    def text_question(
        self, blocks: Blocks, query: str, instructions: str, namespace: str, options: dict[str, Any]
    ) -> Question:
        """Check what the engine does not; the question of a text prompt."""
        return Question(
            blocks=tuple(blocks) if isinstance(blocks, Iterator) else blocks,
            query=query,
            is_text=True,
            instructions=instructions,
            session_id=None,
            namespace=namespace,
            options=self._options(namespace, options),
        )

    def attempts(self, question: Question, seat: Seat[LockT]) -> Iterator[Attempt]:
        """Try one replica after the other, until one does not fail."""

        def turn(engine: ReuseEngine, plan: Plan | None) -> Turn:
            return Turn(engine, seat.conversation, question, self._window, self._clock, plan)

        return self.replicas.attempts(question, seat.conversation, turn)

    def _options(self, namespace: str, options: dict[str, Any]) -> dict[str, Any]:
        for name in ("messages", "prompt"):
            if name in options:
                raise RequestError(
                    f"{name} cannot be given, this client builds it: give the question as query, its documents as "
                    "blocks, a system prompt as instructions; earlier turns are kept by session_id"
                )
        if "stream" in options:
            raise RequestError("stream cannot be given here: use chat(...) for a whole answer")
        for name in ("extra_body", "stream_options"):
            if not isinstance(options.get(name), Mapping | None):
                kind = type(options[name]).__name__
                raise RequestTypeError(f"{name} is a {kind}; it must be a dict of the server's options; leave it out")
        if not isinstance(namespace, str):
            raise RequestTypeError(f"namespace={namespace!r} must be a str; give the tenant's name, or leave it out")
        if self._tenants is not None:
            options = self._tenants.salted(options, namespace)
        elif len(self.replicas) > 1 and namespace != "default":
            raise RequestError(
                f"namespace={namespace!r} at {len(self.replicas)} replicas needs tenants=Tenants(key): without salts "
                "the tenants share the prefix caches; give the key, or leave the namespace out"
            )
        return {"model": self._model, **options}


def _parts(query: Query) -> tuple[Message, ...]:
    """Return the parts of a question that is no plain text. Raises `RequestTypeError`."""
    if isinstance(query, str) or not isinstance(query, Sequence):
        return ()
    parts = list[Message]()
    for number, part in enumerate(query):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise RequestTypeError(
                f"query[{number}] is a {type(part).__name__}; a question is a str, or a list of parts in OpenAI form, "
                'like {"type": "text", "text": "..."}'
            )
        parts.append(deepcopy(dict(part)))  # they stay in the history, and callers may change theirs
    return tuple(parts)


@contextmanager
def held(seat: Seat[threading.Lock], question: Question) -> Iterator[None]:
    """Hold a session for one turn of this thread.

    Raises:
        RequestError: this thread holds it already, by a stream that has not ended.
    """
    if not seat.lock.acquire(blocking=False):
        if seat.owner == threading.get_ident():
            raise _unfinished(question)
        seat.lock.acquire()
    seat.owner = threading.get_ident()
    try:
        yield
    finally:
        seat.owner = None
        seat.lock.release()


@asynccontextmanager
async def held_async(seat: Seat[asyncio.Lock], question: Question) -> AsyncIterator[None]:
    """Hold a session for one turn of this task. Raises as `held`."""
    if seat.lock.locked() and seat.owner is asyncio.current_task():
        raise _unfinished(question)
    async with seat.lock:
        seat.owner = asyncio.current_task()
        try:
            yield
        finally:
            seat.owner = None


@asynccontextmanager
async def in_turn(attempt: Attempt, question: Question, seat: Seat[asyncio.Lock]) -> AsyncIterator[None]:
    """Let the question go when its turn in a window has come, which ends with the block; at once without windows."""
    if attempt.is_planned or attempt.replica.scheduler is None:
        yield
        return
    request = question.request(seat.conversation.history.messages)
    async with attempt.replica.scheduler.turn(request) as plan:
        attempt.plan(plan)
        yield


def _unfinished(question: Question) -> RequestError:
    return RequestError(
        f"session_id={question.session_id!r} has an answer that is still being streamed here, and waiting for it "
        "would never end; read it to its end or close it first (with client.stream(...) as stream: ...)"
    )


@contextmanager
def closing_stream(chunks: Any) -> Iterator[Any]:
    """Close a response at the end, if it can be closed."""
    try:
        yield chunks
    finally:
        if hasattr(chunks, "close"):
            chunks.close()


@asynccontextmanager
async def closing_async_stream(chunks: Any) -> AsyncIterator[Any]:
    """Close a response at the end, if it can be closed (an async generator calls it ``aclose``)."""
    try:
        yield chunks
    finally:
        close = getattr(chunks, "close", None) or getattr(chunks, "aclose", None)
        if close is not None:
            await close()
