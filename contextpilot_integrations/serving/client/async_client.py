"""The asynchronous twins of `contextpilot_integrations.serving.client.client`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from contextpilot_core import PromptTokens, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.asking import Asking
from contextpilot_integrations.serving.client.calls import (
    Chats,
    Limits,
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
from contextpilot_integrations.serving.client.streams import AsyncChatStream, Item
from contextpilot_integrations.serving.client.turn import ChatResult, Question
from contextpilot_integrations.serving.tokens import TokenSource


class AsyncChatCalls(Asking[Awaitable[ChatResult], Awaitable[AsyncChatStream], AsyncChatStream]):
    """As `ChatCalls`, for tasks."""

    async def _answer(self, question: Question) -> ChatResult:
        return await AsyncChatStream(self._run(question, shown=False)).read()

    async def _streamed(self, question: Question) -> AsyncChatStream:
        return self._stream(question)

    def _stream(self, question: Question) -> AsyncChatStream:
        return AsyncChatStream(self._run(question, shown=True))

    async def _run(self, question: Question, *, shown: bool) -> AsyncGenerator[Item, None]:
        async with self._chats.sessions.aheld(question.namespace, question.session_id) as (conversation, held):
            for attempt in self._chats.attempts(question, conversation):
                with attempt:
                    async with in_turn(attempt):
                        opened = await _open(attempt)
                    async with closing_async_stream(opened) as chunks:
                        async for chunk in chunks:
                            text = attempt.turn.feed(chunk)
                            if text and shown:
                                if not attempt.seen:
                                    attempt.seen = True
                                    yield attempt.turn
                                yield text
                                held.keep()
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
            max_sessions: histories that are kept per namespace.
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
    asked = replica.wishes.present
    while True:
        try:
            chunks = await replica.create(**turn.arguments(asked))
            break
        except Exception as error:
            fewer = replica.wishes.fewer(asked, error)
            if fewer is None:
                raise
        asked = fewer
    replica.wishes.accepted(asked)
    attempt.accepted()
    return chunks


async def _tokens(attempt: Attempt) -> PromptTokens | None:
    tokenizer = attempt.replica.tokenizer
    return None if tokenizer is None else await asyncio.to_thread(attempt.turn.read_tokens, tokenizer)
