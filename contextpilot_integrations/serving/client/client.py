"""Chat clients around an OpenAI client: every prompt is planned, the context stays in each session's history."""

import time
from collections.abc import Callable, Generator
from typing import Any, Literal, overload

from contextpilot_core import Message, PromptTokens, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.client.calls import Blocks, Chats, Limits, Query, closing_stream
from contextpilot_integrations.serving.client.replicas import Attempt, OpenAIClient, only, refuse_other_kind
from contextpilot_integrations.serving.client.streams import AsyncChatStream, ChatStream
from contextpilot_integrations.serving.client.turn import ChatResult, Question, may_refuse
from contextpilot_integrations.serving.tokens import TokenSource

__all__ = [
    "AsyncChatStream",
    "AsyncContextPilotClient",
    "ChatResult",
    "ChatStream",
    "ContextPilotClient",
    "OpenAIClient",
]


class ChatCalls:
    """The calls of a client, whatever number of servers is behind it; thread-safe."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    @overload
    def chat(
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
    def chat(
        self,
        blocks: Blocks,
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: Literal[True],
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatStream: ...

    def chat(
        self,
        blocks: Blocks,
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        stream: bool = False,
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult | ChatStream:
        """Ask ``query`` about ``blocks`` (best first) and return the answer, or its stream.

        Args:
            blocks: retrieved texts; what the session's history already shows is not sent again.
            query: the question: a text, or a list of parts (images ...), which are passed on unread.
            session_id: names the conversation; None is the session of ``contextpilot_integrations.session.session``,
                or no history at all.
            instructions: the system message, at the start of a conversation.
            stream: return a `ChatStream` instead.
            namespace: sessions, orders and caches are shared inside it only.
            **create_kwargs: go to ``client.chat.completions.create`` untouched (tools, extra_body, temperature ...).

        Raises:
            RequestError: something cannot be planned as given; nothing was sent.
        """
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        pieces = ChatStream(self._run(question, shown=stream))
        return pieces if stream else pieces.read()

    def stream(
        self,
        blocks: Blocks,
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatStream:
        """Return the answer piece by piece; arguments and errors as `chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return ChatStream(self._run(question, shown=True))

    def complete(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatResult:
        """Continue a text prompt (``/v1/completions``, no chat template): instructions, ``blocks``, ``query``.

        There are no sessions. Texts and chats start with different tokens: give them engines (clients) of their own.
        Arguments and errors as `chat`.
        """
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return ChatStream(self._run(question, shown=False)).read()

    def stream_completion(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> ChatStream:
        """Return what `complete` returns, piece by piece."""
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return ChatStream(self._run(question, shown=True))

    def history(self, session_id: str, *, namespace: str = "default") -> tuple[Message, ...]:
        """Return a session's messages with their contexts; none for an unknown session."""
        return self._chats.sessions.history(namespace, session_id)

    def reset(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session's history; its next question starts anew. Returns whether there was one."""
        return self._chats.sessions.forget(namespace, session_id)

    def _run(self, question: Question, *, shown: bool) -> Generator[str | ChatResult, None, None]:
        """Yield the pieces of the answer, if they are to be ``shown``, and the result."""
        with self._chats.sessions.held(question.namespace, question.session_id) as (conversation, keep):
            for attempt in self._chats.attempts(question, conversation):
                with attempt:
                    with closing_stream(_open(attempt)) as chunks:
                        for chunk in chunks:
                            text = attempt.turn.feed(chunk)
                            if text and shown:
                                attempt.seen = True
                                yield text
                                keep()
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
            max_sessions: histories that are kept; the least recently used is forgotten.
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
    asked = replica.asked
    while True:
        try:
            chunks = replica.create(**turn.arguments(asked))
            break
        except Exception as error:
            if not (asked and may_refuse(error)):
                raise
        asked = asked[:-1]
    replica.asked = asked
    attempt.accepted()
    return chunks


def _tokens(attempt: Attempt) -> PromptTokens | None:
    tokenizer = attempt.replica.tokenizer
    return None if tokenizer is None else attempt.turn.read_tokens(tokenizer)
