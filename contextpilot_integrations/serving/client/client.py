"""Chat clients around an OpenAI client: every prompt is planned, the context stays in each session's history."""

import time
from collections.abc import Callable, Generator
from typing import Any

from contextpilot_core import PromptTokens, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.asking import Asking
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.calls import Chats, Limits, closing_stream
from contextpilot_integrations.serving.client.replicas import Attempt, OpenAIClient, only, refuse_other_kind
from contextpilot_integrations.serving.client.streams import AsyncChatStream, ChatStream, Item
from contextpilot_integrations.serving.client.turn import ChatResult, Question
from contextpilot_integrations.serving.tokens import TokenSource

__all__ = [
    "AsyncChatStream",
    "AsyncContextPilotClient",
    "ChatResult",
    "ChatStream",
    "ContextPilotClient",
    "OpenAIClient",
]


class ChatCalls(Asking[ChatResult, ChatStream, ChatStream]):
    """The calls of a client for threads; thread-safe."""

    def _answer(self, question: Question) -> ChatResult:
        return ChatStream(self._run(question, shown=False)).read()

    def _stream(self, question: Question) -> ChatStream:
        return ChatStream(self._run(question, shown=True))

    _streamed = _stream

    def _run(self, question: Question, *, shown: bool) -> Generator[Item, None, None]:
        """Yield the pieces of the answer, if they are to be ``shown``, and the result."""
        with self._chats.sessions.held(question.namespace, question.session_id) as (conversation, held):
            for attempt in self._chats.attempts(question, conversation):
                with attempt:
                    with closing_stream(_open(attempt)) as chunks:
                        for chunk in chunks:
                            text = attempt.turn.feed(chunk)
                            if text and shown:
                                if not attempt.seen:
                                    attempt.seen = True
                                    yield attempt.turn
                                yield text
                                held.keep()
                    result = attempt.turn.finish(_tokens(attempt))
                    break
        yield result


class ContextPilotClient(ChatCalls):
    """Chats through an injected ``openai.OpenAI`` (or anything with ``chat.completions.create``); thread-safe.

    A session's history holds its contexts and only ever grows, so that each prompt starts with the whole of the one
    before; when the window is full, its oldest turns go. Calls of one session wait for each other. Retries, time
    limits and errors are those of the injected client.
    """

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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap ``client``.

        Args:
            client: the OpenAI client; it stays yours to close.
            model: the server's name for its model.
            engine: plans the prompts; several clients of one server should share it. None: a new one.
            tenants: sends every request under its namespace's ``cache_salt`` (vLLM, SGLang). None: without, so that
                all namespaces share the server's prefix cache, and ``extra_body`` is the caller's alone.
            tokens: tells an engine that follows KV events (``ReuseEngine(mirror=...)``) the exact tokens of prompts;
                None: the server does, by ``return_token_ids`` and its endpoint ``/tokenize``.
            max_context_tokens: the context window; a session that would not fit drops whole oldest turns until its
                history takes at most half of it. None: no limit.
            token_counter: counts a text's tokens for that; corrected by what the server reports.
            max_sessions: histories that are kept per namespace; the least recently used is forgotten.
            clock: seconds, for ``ttft_ms``.

        Raises:
            ConfigError: a value breaks its rule, or ``client`` is asynchronous.
        """
        refuse_other_kind(client, asynchronous=False, twin="AsyncContextPilotClient")
        replicas = only(client, ReuseEngine() if engine is None else engine, tokens)
        limits = Limits(max_sessions, max_context_tokens, token_counter)
        super().__init__(Chats(replicas, model, limits, tenants, clock))

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the prompts."""
        return self._chats.replicas.engines[0]


def _open(attempt: Attempt) -> Any:
    replica, turn = attempt.replica, attempt.turn
    asked = replica.wishes.present
    while True:
        try:
            chunks = replica.create(**turn.arguments(asked))
            break
        except Exception as error:
            fewer = replica.wishes.fewer(asked, error)
            if fewer is None:
                raise
        asked = fewer
    replica.wishes.accepted(asked)
    attempt.accepted()
    return chunks


def _tokens(attempt: Attempt) -> PromptTokens | None:
    tokenizer = attempt.replica.tokenizer
    return None if tokenizer is None else attempt.turn.read_tokens(tokenizer)
