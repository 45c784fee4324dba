"""The asynchronous twins of `contextpilot_integrations.serving.client.client`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, overload

from contextpilot_core import Message, PromptTokens, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.calls import (
    Blocks,
    Chats,
    Limits,
    Query,
    closing_async_stream,
    in_turn,
)
from contextpilot_integrations.serving.client.replicas import (
    Attempt,
    OpenAIClient,
    only,
    refuse_other_kind,
    scheduler_of,
)
from contextpilot_integrations.serving.client.streams import AsyncChatStream
from contextpilot_integrations.serving.client.turn import ChatResult, Question, may_refuse
from contextpilot_integrations.serving.tokens import TokenSource


class AsyncChatCalls:
    """As `ChatCalls`, for the tasks of one event loop."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    @overload
    async def chat(
        self,
        blocks: Blocks,
        query: Query,
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
        query: Query,
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
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: bool = False,
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult | AsyncChatStream:
        """Ask ``query`` about ``blocks``; as `ContextPilotClient.chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        pieces = AsyncChatStream(self._run(question, shown=stream))
        return pieces if stream else await pieces.read()

    def stream(
        self,
        blocks: Blocks,
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> AsyncChatStream:
        """Return the answer piece by piece (no ``await``); arguments and errors as `chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return AsyncChatStream(self._run(question, shown=True))

    async def complete(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult:
        """Continue a text prompt; as `ContextPilotClient.complete`."""
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return await AsyncChatStream(self._run(question, shown=False)).read()

    def stream_completion(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> AsyncChatStream:
        """Return what `complete` returns, piece by piece (no ``await``)."""
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return AsyncChatStream(self._run(question, shown=True))

    def history(self, session_id: str, *, namespace: str = "default") -> tuple[Message, ...]:
        """Return a session's messages with their contexts; none for an unknown session."""
        return self._chats.sessions.history(namespace, session_id)

    def reset(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session's history; its next question starts anew. Returns whether there was one."""
        return self._chats.sessions.forget(namespace, session_id)

    async def _run(self, question: Question, *, shown: bool) -> AsyncGenerator[str | ChatResult, None]:
        async with self._chats.sessions.aheld(question.namespace, question.session_id) as (conversation, keep):
            for attempt in self._chats.attempts(question, conversation):
                with attempt:
                    async with in_turn(attempt):
                        opened = await _open(attempt)
                    async with closing_async_stream(opened) as chunks:
                        async for chunk in chunks:
                            text = attempt.turn.feed(chunk)
                            if text and shown:
                                attempt.seen = True
                                yield text
                                keep()
                    result = attempt.turn.finish(await _tokens(attempt))
                    break
        yield result


class AsyncContextPilotClient(AsyncChatCalls):
    """As `ContextPilotClient`, around an ``openai.AsyncOpenAI``; for the tasks of one event loop."""

    def __init__(
        self,
        client: OpenAIClient,
        *,
        model: str,
        engine: ReuseEngine | None = None,
        tenants: Tenants | None = None,
        tokens: TokenSource | None = None,
        max_context_tokens: int | None = None,
        token_counter: TokenCounter = estimate_tokens,
        max_sessions: int = 1_000,
        max_wait_ms: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap ``client``; arguments as `ContextPilotClient`, and one more.

        Args:
            client: an ``openai.AsyncOpenAI``.
            model: the name under which the server knows the model.
            engine: plans the prompts.
            tenants: salts for the namespaces.
            tokens: exact tokens of prompts.
            max_context_tokens: the context window.
            token_counter: counts for it.
            max_sessions: histories that are kept.
            max_wait_ms: let questions that come within so many milliseconds wait for each other, and send them in the
                order that reuses most (`WindowScheduler`); None: each goes at once.
            clock: seconds that never go back.

        Raises:
            ConfigError: a value breaks its rule, or ``client`` is not asynchronous.
        """
        refuse_other_kind(client, asynchronous=True, twin="ContextPilotClient")
        engine = ReuseEngine() if engine is None else engine
        replicas = only(client, engine, tokens, scheduler_of(engine, max_wait_ms))
        limits = Limits(max_sessions, max_context_tokens, token_counter)
        super().__init__(Chats(replicas, model, limits, tenants, clock))

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the prompts."""
        return self._chats.replicas.engines[0]


async def _open(attempt: Attempt) -> Any:
    replica, turn = attempt.replica, attempt.turn
    asked = replica.asked
    while True:
        try:
            chunks = await replica.create(**turn.arguments(asked))
            break
        except Exception as error:
            if not (asked and may_refuse(error)):
                raise
        asked = asked[:-1]
    replica.asked = asked
    attempt.accepted()
    return chunks


async def _tokens(attempt: Attempt) -> PromptTokens | None:
    tokenizer = attempt.replica.tokenizer
    return None if tokenizer is None else await asyncio.to_thread(attempt.turn.read_tokens, tokenizer)
