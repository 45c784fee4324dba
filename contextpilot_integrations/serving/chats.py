"""What the two chat clients share: everything but the sending, and how their calls wait for each other."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, Protocol, TypeAlias

from contextpilot_core.engine import ReuseEngine
from contextpilot_core.errors import ConfigError, RequestError
from contextpilot_core.types import ContextBlock
from contextpilot_integrations.serving.conversation import Conversation, LockT, Seat, Sessions
from contextpilot_integrations.serving.turn import Question, Turn, Window
from contextpilot_integrations.session import current_session

Blocks: TypeAlias = Iterable[str | ContextBlock]


class OpenAIClient(Protocol):
    """What is used of an ``openai.OpenAI`` or ``openai.AsyncOpenAI``: ``client.chat.completions.create(...)``."""

    @property
    def chat(self) -> Any:
        """The chat endpoints."""


class Chats(Generic[LockT]):
    """What both clients share: everything but the sending."""

    def __init__(
        self,
        engine: ReuseEngine | None,
        model: str,
        sessions: Sessions[LockT],
        window: Window,
        clock: Callable[[], float],
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigError(f"model={model!r} must be the name under which the server knows its model; give it")
        self.engine = ReuseEngine() if engine is None else engine
        self.sessions = sessions
        self.ask_usage = True
        self._model, self._window, self._clock = model, window, clock

    def question(
        self,
        blocks: Blocks,
        query: str,
        session_id: str | None,
        instructions: str,
        namespace: str,
        options: dict[str, Any],
    ) -> Question:
        """Check what the engine does not."""
        if "messages" in options:
            raise RequestError(
                "messages cannot be given, this client builds them: give the question as query, its documents as "
                "blocks, a system prompt as instructions; earlier turns are kept by session_id"
            )
        if "stream" in options:
            raise RequestError("stream cannot be given here: use chat(...) for a whole answer")
        return Question(
            blocks=tuple(blocks) if isinstance(blocks, Iterator) else blocks,
            query=query,
            instructions=instructions,
            session_id=current_session() if session_id is None else session_id,
            namespace=namespace,
            options={"model": self._model, **options},
        )

    def turn(self, conversation: Conversation, question: Question) -> Turn:
        """Plan one turn."""
        return Turn(self.engine, conversation, question, self._window, self._clock)


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


def _unfinished(question: Question) -> RequestError:
    return RequestError(
        f"session_id={question.session_id!r} has an answer that is still being streamed here, and waiting for it "
        "would never end; read it to its end or close it first (with client.stream(...) as stream: ...)"
    )


def create_method(client: OpenAIClient) -> Any:
    """Return ``client.chat.completions.create``. Raises `ConfigError` when there is none."""
    try:
        return client.chat.completions.create
    except AttributeError as error:
        raise ConfigError(f"client is a {type(client).__name__}; it must be an openai.OpenAI or AsyncOpenAI") from error


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
