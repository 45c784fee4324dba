"""The calls of all clients, the same for threads and for tasks: which arguments they take, and what they mean."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Literal, TypeVar, overload

from contextpilot_core import Message, Plan
from contextpilot_integrations.serving.client.calls import Blocks, Chats, Query
from contextpilot_integrations.serving.client.turn import Question

AnswerT = TypeVar("AnswerT")
StreamedT = TypeVar("StreamedT")
StreamT = TypeVar("StreamT")


class Asking(ABC, Generic[AnswerT, StreamedT, StreamT]):
    """What a client can be asked, whatever number of servers is behind it.

    An asynchronous one is awaited, but for its streams.
    """

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    @abstractmethod
    def _answer(self, question: Question) -> AnswerT:
        """Return a whole answer."""

    @abstractmethod
    def _streamed(self, question: Question) -> StreamedT:
        """Return the stream that ``chat(stream=True)`` returns."""

    @abstractmethod
    def _stream(self, question: Question) -> StreamT:
        """Return an answer piece by piece."""

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
    ) -> AnswerT: ...

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
    ) -> StreamedT: ...

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
    ) -> AnswerT | StreamedT:
        """Ask ``query`` about ``blocks`` (best first) and return the answer, or its stream.

        Args:
            blocks: retrieved texts; what the session's history already shows is not sent again.
            query: the question: a text, or a list of parts (images ...), which are passed on unread.
            session_id: names the conversation; None is the session of ``contextpilot_integrations.session.session``,
                or no history at all.
            instructions: the system message, at the start of a conversation.
            stream: return what `stream` returns instead.
            namespace: sessions, orders and caches are shared inside it only.
            **create_kwargs: go to ``client.chat.completions.create`` untouched (tools, extra_body, temperature ...).

        Raises:
            RequestError: something cannot be planned as given; nothing was sent.
            AnswerError: what came is no answer (a page of HTML, nothing at all); errors of the client library come
                through.
        """
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return self._streamed(question) if stream else self._answer(question)

    def stream(
        self,
        blocks: Blocks,
        query: Query,
        *,
        session_id: str | None = None,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> StreamT:
        """Return the answer piece by piece; arguments and errors as `chat`."""
        question = self._chats.question(blocks, query, session_id, instructions, namespace, create_kwargs)
        return self._stream(question)

    def complete(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> AnswerT:
        """Continue a text prompt (``/v1/completions``, no chat template): instructions, ``blocks``, ``query``.

        There are no sessions. Texts and chats start with different tokens: give them engines (clients) of their own.
        Arguments and errors as `chat`.
        """
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return self._answer(question)

    def stream_completion(
        self,
        blocks: Blocks,
        query: str,
        *,
        instructions: str = "",
        namespace: str = "default",
        **create_kwargs: Any,
    ) -> StreamT:
        """Return what `complete` returns, piece by piece."""
        question = self._chats.text_question(blocks, query, instructions, namespace, create_kwargs)
        return self._stream(question)

    def history(self, session_id: str, *, namespace: str = "default") -> tuple[Message, ...]:
        """Return a session's messages with their contexts; none for an unknown session."""
        return self._chats.sessions.history(namespace, session_id)

    def reset(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session's history; its next question starts anew. Returns whether there was one."""
        return self._chats.sessions.forget(namespace, session_id)

    def last_plan(self, session_id: str, *, namespace: str = "default") -> Plan | None:
        """Return the plan of a session's latest answer; None for an unknown session."""
        return self._chats.sessions.find(namespace, session_id).last_plan
