"""What all clients share: everything but the sending."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from contextpilot_core import (
    ConfigError,
    ContextBlock,
    ContextRequest,
    Message,
    Plan,
    RequestError,
    RequestTypeError,
    ReuseEngine,
    TokenCounter,
)
from contextpilot_core.checks import shown
from contextpilot_integrations.serving.chat import Asked, Setting, Tenants, check_options, check_parts, whole
from contextpilot_integrations.serving.chat.entries import read
from contextpilot_integrations.serving.client.conversation import Conversation, Sessions
from contextpilot_integrations.serving.client.replicas import Attempt, Replicas
from contextpilot_integrations.serving.client.turn import ClientTurn, Question
from contextpilot_integrations.session import session_of

Blocks: TypeAlias = Iterable[str | ContextBlock]
Query: TypeAlias = str | Sequence[Mapping[str, Any]]


class Limits(NamedTuple):
    """Bounds of a client's sessions: how many, the context window in tokens, and how tokens are counted for it."""

    max_sessions: int
    max_context_tokens: int | None
    token_counter: TokenCounter


class Chats:
    """What all clients share: everything but the sending."""

    def __init__(
        self,
        replicas: Replicas,
        model: str,
        limits: Limits,
        tenants: Tenants | None,
        clock: Callable[[], float],
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigError(f"model={shown(model)} must be the name under which the server knows its model; give it")
        check_parts(tenants=tenants, clock=clock)
        self.replicas, self.sessions = replicas, Sessions(limits.max_sessions)
        self._model, self._clock, self._tenants = model, clock, tenants
        # What every question starts from; the messages are kept here alone.
        self._setting = Setting(
            engine=replicas.engines[0], count=limits.token_counter, window=limits.max_context_tokens, stored=False
        )

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
            asked=Asked("" if parts else query, _blocks(blocks), parts),  # type: ignore[arg-type]  # the engine refuses
            instructions=whole(instructions),
            session_id=session_of(argument=session_id),
            namespace=namespace,
            options=self._options(namespace, options),
        )

    def text_question(
        self, blocks: Blocks, query: str, instructions: str, namespace: str, options: dict[str, Any]
    ) -> Question:
        """Check what the engine does not; the question of a text prompt."""
        return Question(
            asked=Asked(query, _blocks(blocks)),
            is_text=True,
            instructions=whole(instructions),
            session_id=None,
            namespace=namespace,
            options=self._options(namespace, options),
        )

    def attempts(self, question: Question, conversation: Conversation) -> Iterator[Attempt]:
        """Try one replica after the other, until one does not fail."""

        def setting(engine: ReuseEngine) -> Setting:
            return replace(
                self._setting,
                engine=engine,
                namespace=question.namespace,
                session_id=question.session_id,
                instructions=question.instructions,
            )

        def turn(engine: ReuseEngine, plan: Plan | None) -> ClientTurn:
            return ClientTurn(setting(engine), conversation, question, self._clock, plan)

        return self.replicas.attempts(request_of(question, conversation), conversation, turn)

    def _options(self, namespace: str, options: dict[str, Any]) -> dict[str, Any]:
        if "stream" in options:
            raise RequestError("stream cannot be given here: use chat(...) for a whole answer")
        if not isinstance(wanted := options.get("stream_options"), Mapping | None):
            raise RequestTypeError(f"stream_options is a {type(wanted).__name__}; it must be a dict; leave it out")
        check_options(options)
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
        try:  # they stay in the history, and callers may change theirs
            parts.append(deepcopy(dict(part)))
        except RecursionError:
            raise RequestError(f"query[{number}] is nested too deeply; give plain JSON values") from None
    return tuple(parts)


def _blocks(blocks: Any) -> Any:
    """Return what can be read again; what are no blocks, the engine refuses."""
    return blocks if isinstance(blocks, (str, bytes, Mapping)) or not isinstance(blocks, Iterable) else tuple(blocks)


def request_of(question: Question, conversation: Conversation) -> ContextRequest:
    """Return a question as the engine reads it, on top of its conversation."""
    return ContextRequest(
        blocks=question.asked.blocks,
        query=question.asked.query,
        instructions=question.instructions,
        messages=tuple(read(conversation.history)),
        session_id=question.session_id,
        namespace=question.namespace,
    )


@asynccontextmanager
async def in_turn(attempt: Attempt) -> AsyncIterator[None]:
    """Let the question go when its turn in a window has come, which ends with the block; at once without windows."""
    if attempt.is_planned or attempt.replica.scheduler is None:
        yield
        return
    async with attempt.replica.scheduler.turn(attempt.request) as plan:
        attempt.plan(plan)
        yield


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
