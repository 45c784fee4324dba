"""Chat clients around an OpenAI client: every prompt is planned, the context stays in each session's history."""

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Literal, overload

from contextpilot_core.engine import ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_core.tokens import TokenCounter, estimate_tokens
from contextpilot_core.types import Message
from contextpilot_integrations.serving.async_client import AsyncContextPilotClient
from contextpilot_integrations.serving.chats import Blocks, Chats, OpenAIClient, closing_stream, create_method, held
from contextpilot_integrations.serving.conversation import Sessions
from contextpilot_integrations.serving.streams import AsyncChatStream, ChatStream
from contextpilot_integrations.serving.turn import ChatResult, Question, Turn, Window, may_refuse_usage

__all__ = [
    "AsyncChatStream",
    "AsyncContextPilotClient",
    "ChatResult",
    "ChatStream",
    "ContextPilotClient",
    "OpenAIClient",
]


class ContextPilotClient:
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
            max_context_tokens: the context window; a session that would not fit drops whole oldest turns until its
                history takes at most half of it. None: no limit.
            token_counter: counts a text's tokens for that; corrected by what the server reports.
            max_sessions: histories that are kept; the least recently used is forgotten.
            clock: seconds, for ``ttft_ms``.

        Raises:
            ConfigError: a value breaks its rule, or ``client`` is asynchronous.
        """
        if hasattr(client, "__aenter__") and not hasattr(client, "__enter__"):
            raise ConfigError(
                f"client is a {type(client).__name__}, which is asynchronous; use AsyncContextPilotClient"
            )
        self._create = create_method(client)
        window = Window(max_context_tokens, token_counter)
        self._chats = Chats(engine, model, Sessions(threading.Lock, max_sessions), window, clock)

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the prompts."""
        return self._chats.engine

    @overload
    def chat(
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
    def chat(
        self,
        blocks: Blocks,
        query: str,
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
        query: str,
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
            query: the question.
            session_id: names the conversation; None is the session of ``contextpilot_integrations.session.session``,
                or no history at all.
            instructions: the system message, at the start of a conversation.
            stream: return a `ChatStream` instead.
            namespace: sessions, orders and caches are shared inside it only.
            **create_kwargs: go to ``client.chat.completions.create`` untouched (tools, extra_body, temperature ...).

        Raises:
            RequestError: something cannot be planned as given; nothing was sent.
        """
        pieces = self.stream(
            blocks, query, session_id=session_id, instructions=instructions, namespace=namespace, **create_kwargs
        )
        if stream:
            return pieces
        for _ in pieces:
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
    ) -> ChatStream:
        """Return the answer piece by piece; arguments and errors as `chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return ChatStream(self._run(question))

    def history(self, session_id: str, *, namespace: str = "default") -> tuple[Message, ...]:
        """Return a session's messages with their contexts; none for an unknown session."""
        return self._chats.sessions.history(namespace, session_id)

    def reset(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session's history; its next question starts anew. Returns whether there was one."""
        return self._chats.sessions.forget(namespace, session_id)

    def _run(self, question: Question) -> Generator[str | ChatResult, None, None]:
        with self._chats.sessions.seat(question.namespace, question.session_id) as seat, held(seat, question):
            turn = self._chats.turn(seat.conversation, question)
            with closing_stream(self._open(turn)) as chunks:
                for chunk in chunks:
                    if text := turn.feed(chunk):
                        yield text
                        seat.owner = threading.get_ident()
            result = turn.finish()
        yield result

    def _open(self, turn: Turn) -> Any:
        try:
            try:
                chunks = self._create(**turn.arguments(ask_usage=self._chats.ask_usage))
            except Exception as error:
                if not (self._chats.ask_usage and may_refuse_usage(error)):
                    raise
                chunks = self._create(**turn.arguments(ask_usage=False))
                self._chats.ask_usage = False
        except BaseException:
            turn.failed()
            raise
        turn.sent()
        return chunks
