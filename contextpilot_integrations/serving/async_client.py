"""The asynchronous twin of `contextpilot_integrations.serving.client.ContextPilotClient`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, overload

from contextpilot_core.engine import ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_core.tokens import TokenCounter, estimate_tokens
from contextpilot_core.types import Message
from contextpilot_integrations.serving.chats import (
    Blocks,
    Chats,
    OpenAIClient,
    closing_async_stream,
    create_method,
    held_async,
)
from contextpilot_integrations.serving.conversation import Sessions
from contextpilot_integrations.serving.streams import AsyncChatStream
from contextpilot_integrations.serving.turn import ChatResult, Question, Turn, Window, may_refuse_usage


class AsyncContextPilotClient:
    """As `ContextPilotClient`, around an ``openai.AsyncOpenAI``; for the tasks of one event loop."""

    def __init__(
        self,
        client: OpenAIClient,
        *,
        model: str,
        engine: ReuseEngine | None = None,
        max_context_tokens: int | None = None,
        token_counter: TokenCounter = estimate_tokens,
        max_sessions: int = 1_000,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap ``client``; arguments as `ContextPilotClient`.

        Raises:
            ConfigError: a value breaks its rule, or ``client`` is not asynchronous.
        """
        if hasattr(client, "__enter__") and not hasattr(client, "__aenter__"):
            raise ConfigError(f"client is a {type(client).__name__}, which is not asynchronous; use ContextPilotClient")
        self._create = create_method(client)
        window = Window(max_context_tokens, token_counter)
        self._chats = Chats(engine, model, Sessions(asyncio.Lock, max_sessions), window, clock)

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the prompts."""
        return self._chats.engine

    @overload
    async def chat(
        self,
        blocks: Blocks,
        query: str,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: Literal[False] = False,
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult: ...

    @overload
    async def chat(
        self,
        blocks: Blocks,
        query: str,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: Literal[True],
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> AsyncChatStream: ...

    async def chat(
        self,
        blocks: Blocks,
        query: str,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: bool = False,
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult | AsyncChatStream:
        """Ask ``query`` about ``blocks``; as `ContextPilotClient.chat`."""
        pieces = self.stream(
            blocks, query, session_id=session_id, instructions=instructions, namespace=namespace, **create_kwargs
        )
        if stream:
            return pieces
        async for _ in pieces:
            pass
        return pieces.result

    def stream(
        self,
        blocks: Blocks,
        query: str,
        *,
        session_id: str | None = None,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> AsyncChatStream:
        """Return the answer piece by piece (no ``await``); arguments and errors as `chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return AsyncChatStream(self._run(question))

    def history(self, session_id: str, *, namespace: str = "default") -> tuple[Message, ...]:
        """Return a session's messages with their contexts; none for an unknown session."""
        return self._chats.sessions.history(namespace, session_id)

    def reset(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session's history; its next question starts anew. Returns whether there was one."""
        return self._chats.sessions.forget(namespace, session_id)

    async def _run(self, question: Question) -> AsyncGenerator[str | ChatResult, None]:
        with self._chats.sessions.seat(question.namespace, question.session_id) as seat:
            async with held_async(seat, question):
                turn = self._chats.turn(seat.conversation, question)
                async with closing_async_stream(await self._open(turn)) as chunks:
                    async for chunk in chunks:
                        if text := turn.feed(chunk):
                            yield text
                            seat.owner = asyncio.current_task()
                result = turn.finish()
        yield result

    async def _open(self, turn: Turn) -> Any:
        try:
            try:
                chunks = await self._create(**turn.arguments(ask_usage=self._chats.ask_usage))
            except Exception as error:
                if not (self._chats.ask_usage and may_refuse_usage(error)):
                    raise
                chunks = await self._create(**turn.arguments(ask_usage=False))
                self._chats.ask_usage = False
        except BaseException:
            turn.failed()
            raise
        turn.sent()
        return chunks
