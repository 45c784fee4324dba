"""A chat engine whose turns extend each other: the documents stay in the history, beside the questions."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from types import NoneType
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponseAsyncGen,
    ChatResponseGen,
    MessageRole,
)
from llama_index.core.callbacks import CallbackManager, trace_method
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.prompts.rich import RichPromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.types import Thread
from llama_index.core.utils import get_tokenizer
from llama_index_instrumentation import get_dispatcher

from contextpilot_core import ConfigError, Plan, PromptTokens, RequestError, ReuseEngine
from contextpilot_core.checks import kind_of
from contextpilot_integrations.llama_index.chat.events import TurnEvent
from contextpilot_integrations.llama_index.chat.finding import CondenseQuestion, Finder, Found
from contextpilot_integrations.llama_index.chat.history import openai_form
from contextpilot_integrations.llama_index.chat.llm import check_list, extra_body, salted, window_and_room
from contextpilot_integrations.llama_index.chat.responses import ContextPilotResponse, ContextPilotStreamingResponse
from contextpilot_integrations.llama_index.chat.template import ContextTemplate
from contextpilot_integrations.llama_index.chat.turn import ChatTurn, TurnMemory
from contextpilot_integrations.llama_index.sessions import find_session
from contextpilot_integrations.serving.chat import (
    Held,
    Setting,
    Tenants,
    TurnLocks,
    Usage,
    check_options,
    check_parts,
    contained,
    read_usage,
    whole,
)
from contextpilot_integrations.serving.tokens import PromptTokenizer, TokenSource

_dispatcher = get_dispatcher(__name__)
_CONVERSATION = "this conversation"


class ContextPilotChatEngine(BaseChatEngine):
    """Chat over a retriever, in place of `ContextChatEngine`: every prompt starts with the whole of the one before.

        chat_engine = ContextPilotChatEngine.from_defaults(retriever, system_prompt="Answer briefly.")

    The documents stand in the user message, before the question, and stay there in the memory. A document that the
    history shows is not sent again but named by a hint; what the history no longer shows is sent again. The LLM is
    called for every question, with or without documents. The memory's messages hold the documents:
    `question_of(message)` gives the question alone. An answer has ``nodes_by_label``, for what it cites.

    When the context window is full, the oldest turns are dropped, whole, down to half of it, so that the next turns
    extend each other again. Questions wait for each other, and until the model has streamed the last answer; where one
    cannot wait, it raises `RequestError`.

    A `TurnEvent` tells LlamaIndex's event handlers the figures of each answer.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        *,
        engine: ReuseEngine | None = None,
        llm: LLM | None = None,
        memory: BaseMemory | None = None,
        prefix_messages: Sequence[ChatMessage] = (),
        node_postprocessors: Sequence[BaseNodePostprocessor] = (),
        context_template: str | PromptTemplate | RichPromptTemplate | None = None,
        condense_question: CondenseQuestion | None = None,
        max_context_tokens: int | None = None,
        session_id: str | None = None,
        namespace: str = "default",
        tenants: Tenants | None = None,
        tokens: TokenSource | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """Make an engine for one conversation.

        Args:
            retriever: finds the documents, by the question as it was asked, or as ``condense_question`` made it.
            engine: plans; None is one of its own. Share one between all that talk to the same model server.
            llm: answers; None is ``Settings.llm``.
            memory: holds the conversation; None is one in this process. All messages in it are sent, up to the limit.
            prefix_messages: stand before every prompt.
            node_postprocessors: applied to what was retrieved.
            context_template: what stands around the documents of a question; a template of one message, with
                ``context_str`` and perhaps ``query_str``. None: the documents, and behind them the question.
            condense_question: makes a question that stands alone, to look for, of one with a history: a prompt with
                ``chat_history`` and ``question`` for the LLM (LlamaIndex's `DEFAULT_CONDENSE_PROMPT_TEMPLATE`), or a
                callable that takes the question and the messages, which may be asynchronous for `achat` and
                `astream_chat`. It sees no documents. The model is asked what the user asked.
            max_context_tokens: the context window, for prompt and answer (``max_tokens`` of the LLM). None is the LLM's
                own; a memory's ``token_limit`` holds as well.
            session_id: names the conversation for the engine, if the surroundings do not (as in the postprocessor).
            namespace: nothing crosses it.
            tenants: sends every prompt under the ``cache_salt`` of the namespace (vLLM, SGLang), in the ``extra_body``
                of a copy of ``llm``, which must be `OpenAI`, `OpenAILike` or the like. None: without.
            tokens: tells an engine that follows KV events (``ReuseEngine(mirror=...)``) the exact tokens of prompts:
                `HuggingFaceTokens` or `ServerTokens`. None: nobody does, and plans rely on the estimate.
            callback_manager: None is ``Settings.callback_manager``.

        Raises:
            ConfigError: ``max_context_tokens`` is below 1, the memory does more than keep messages (memory blocks,
                summaries), a template lacks its variables, or ``tenants`` cannot be kept apart with this LLM.
        """
        check_parts(engine=engine, session_id=session_id, namespace=namespace, tenants=tenants, tokens=tokens)
        llm = Settings.llm if llm is None else llm
        kind_of("llm", llm, LLM, "an LLM of LlamaIndex, or None for Settings.llm")
        kind_of("memory", memory, (BaseMemory, NoneType), "a memory of LlamaIndex, or None for a new one")
        kind_of("callback_manager", callback_manager, (CallbackManager, NoneType), "a CallbackManager, or None")
        check_list("prefix_messages", prefix_messages, ChatMessage)
        check_list("node_postprocessors", node_postprocessors, BaseNodePostprocessor)
        self._llm = llm if tenants is None else salted(llm, tenants, namespace)
        window, self._room = window_and_room(max_context_tokens, self._llm, memory)
        # `Memory` would count all tokens anew for every message, and keep a thread and an event loop for its database.
        self._memory = ChatMemoryBuffer.from_defaults(token_limit=self._room) if memory is None else memory
        self._finder = Finder(retriever, node_postprocessors, condense_question, self._llm)
        self._template = None if context_template is None else ContextTemplate(context_template)
        self._session_id, self._prefix = session_id, list(prefix_messages)
        engine = ReuseEngine() if engine is None else engine
        tokenizer = getattr(self._memory, "tokenizer_fn", None) or get_tokenizer()
        self._setting = Setting(
            engine=engine,
            count=lru_cache(maxsize=4_096)(lambda text: len(tokenizer(text))),  # of a long history, the new alone
            window=window,
            namespace=namespace,
            prefix=tuple(openai_form(self._prefix)),
        )
        # Only where the server has messages, too: else LlamaIndex makes the prompt.
        follows = engine.follows_events and self._llm.metadata.is_chat_model
        self._tokenizer = PromptTokenizer(tokens) if tokens is not None and follows else None
        self._scale = 1.0  # tokens that the server reports per token counted here
        self._last_plan: Plan | None = None
        self._last_usage = Usage()
        self._locks = TurnLocks()
        self._held: Held | None = None  # the conversation, as the latest turn has it; its answer may be under way
        self._writing: threading.Thread | asyncio.Task[None] | None = None  # the answer that is being streamed
        self.callback_manager = Settings.callback_manager if callback_manager is None else callback_manager
        for postprocessor in node_postprocessors:
            postprocessor.callback_manager = self.callback_manager

    @classmethod
    def from_defaults(
        cls,
        retriever: BaseRetriever,
        *,
        chat_history: list[ChatMessage] | None = None,
        system_prompt: str | None = None,
        **options: Any,
    ) -> "ContextPilotChatEngine":
        """Make an engine as LlamaIndex's chat engines are made; ``options`` are the constructor's.

        ``chat_history`` is what the conversation starts with, ``system_prompt`` stands in place of
        ``prefix_messages``.

        Raises:
            ConfigError: both ``system_prompt`` and ``prefix_messages`` are given; else as the constructor.
        """
        kind_of("system_prompt", system_prompt, (str, NoneType), "a str, or None for none")
        check_list("chat_history", () if chat_history is None else chat_history, ChatMessage)
        if system_prompt is not None:
            if options.get("prefix_messages"):
                raise ConfigError("system_prompt and prefix_messages are both given; put the system message into one")
            llm = options["llm"] = options.get("llm") or Settings.llm
            options["prefix_messages"] = [ChatMessage(role=llm.metadata.system_role, content=system_prompt)]
        chat_engine = cls(retriever, **options)
        if chat_history is not None:
            chat_engine._memory.set(list(chat_history))
        return chat_engine

    @property
    def chat_history(self) -> list[ChatMessage]:
        """The conversation as it was sent, documents included."""
        return list(self._memory.get_all())

    @property
    def last_plan(self) -> Plan | None:
        """The plan of the latest question: what was moved, left out and hinted at."""
        return self._last_plan

    @property
    def last_usage(self) -> Usage:
        """What the server said about the latest answer; streams say it with the LLM's ``stream_options`` only."""
        return self._last_usage

    def reset(self) -> bool:  # type: ignore[override]  # the framework's returns nothing
        """Empty the memory; an answer under way does not get there. Returns whether it held anything."""
        if self._held is not None:
            self._held.void()
        known = bool(self._memory.get_all())
        self._memory.reset()
        return known

    @trace_method("chat")
    def chat(self, message: str, chat_history: list[ChatMessage] | None = None) -> ContextPilotResponse:
        """Answer a question; ``chat_history`` replaces what the memory holds."""
        with self._locks.hold(_CONVERSATION) as held:
            turn = self._ask(message, chat_history, held)
            with turn.turn.sending():
                answer = self._llm.chat(turn.prompt(self._prefix))
            usage = read_usage(answer.raw)
            self._answered(turn, usage, turn.read_tokens(self._tokenizer, usage))
            reply = ChatMessage(role=MessageRole.ASSISTANT, content=whole(answer.message.content or ""))
            TurnMemory(self._memory, turn, held).put(reply)
        return turn.response(reply)

    @trace_method("chat")
    async def achat(self, message: str, chat_history: list[ChatMessage] | None = None) -> ContextPilotResponse:
        """Answer a question, as `chat`."""
        async with self._locks.ahold(_CONVERSATION) as held:
            turn = await self._aask(message, chat_history, held)
            with turn.turn.sending():
                answer = await self._llm.achat(turn.prompt(self._prefix))
            usage = read_usage(answer.raw)
            self._answered(turn, usage, await turn.aread_tokens(self._tokenizer, usage))
            reply = ChatMessage(role=MessageRole.ASSISTANT, content=whole(answer.message.content or ""))
            await TurnMemory(self._memory, turn, held).aput(reply)
        return turn.response(reply)

    @trace_method("chat")
    def stream_chat(self, message: str, chat_history: list[ChatMessage] | None = None) -> ContextPilotStreamingResponse:
        """Answer a question piece by piece, as `chat`; the memory holds the turn once the answer is complete."""
        with self._locks.hold(_CONVERSATION) as held:
            turn = self._ask(message, chat_history, held)
            with turn.turn.opening():
                chunks = self._llm.stream_chat(turn.prompt(self._prefix))
            response = turn.streaming(chat_stream=self._watched(turn, chunks))
            thread = Thread(target=response.write_response_to_history, args=(TurnMemory(self._memory, turn, held),))
            response.write_response_to_history_thread = self._writing = thread
            thread.start()
        return response

    @trace_method("chat")
    async def astream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> ContextPilotStreamingResponse:
        """Answer a question piece by piece, as `stream_chat`."""
        async with self._locks.ahold(_CONVERSATION) as held:
            turn = await self._aask(message, chat_history, held)
            with turn.turn.opening():
                chunks = await self._llm.astream_chat(turn.prompt(self._prefix))
            response = turn.streaming(achat_stream=self._awatched(turn, chunks))
            task = asyncio.create_task(response.awrite_response_to_history(TurnMemory(self._memory, turn, held)))
            task.add_done_callback(lambda _: turn.turn.failed())  # it may be cancelled before it begins
            response.awrite_response_to_history_task = self._writing = task
        return response

    def _ask(self, message: str, chat_history: list[ChatMessage] | None, held: Held) -> ChatTurn:
        if isinstance(self._writing, threading.Thread):
            self._writing.join()
        elif self._writing is not None:
            _check_written(self._writing)
        self._held = held
        if chat_history is not None:
            self._memory.set(list(chat_history))
        message, stored = whole(message), self._memory.get_all()
        return self._plan(message, self._finder.find(message, stored), stored)

    async def _aask(self, message: str, chat_history: list[ChatMessage] | None, held: Held) -> ChatTurn:
        if isinstance(self._writing, threading.Thread):
            await asyncio.to_thread(self._writing.join)
        elif self._writing is not None:
            if self._writing.get_loop() is asyncio.get_running_loop():
                await asyncio.wait([self._writing])  # its error belongs to whoever reads the answer
            _check_written(self._writing)
        self._held = held
        if chat_history is not None:
            await self._memory.aset(list(chat_history))
        message, stored = whole(message), await self._memory.aget_all()
        return self._plan(message, await self._finder.afind(message, stored), stored)

    def _plan(self, message: str, found: Found, stored: list[ChatMessage]) -> ChatTurn:
        check_options(getattr(self._llm, "additional_kwargs", None) or {})
        setting = replace(self._setting, session_id=find_session(self._session_id, self._memory))
        turn = ChatTurn(
            setting,
            message,
            found,
            stored,
            template=self._template,
            room=self._room,
            scale=self._scale,
            extra_body=extra_body(self._llm),
        )
        self._last_plan = turn.turn.plan
        return turn

    def _answered(self, turn: ChatTurn, usage: Usage, tokens: PromptTokens | None) -> None:
        self._last_usage = usage
        with contained("telling the figures of a turn"):
            _dispatcher.event(TurnEvent(**asdict(turn.figures(usage, tokens))))
        self._scale = turn.turn.scale(usage.prompt_tokens) or self._scale

    def _watched(self, turn: ChatTurn, chunks: ChatResponseGen) -> ChatResponseGen:
        usage: Usage | None = None
        with turn.turn.streaming() as chunk_came:
            for chunk in chunks:
                chunk_came()
                usage = (usage or Usage()).updated(read_usage(chunk.raw))
                yield chunk
        if usage is not None:
            self._answered(turn, usage, turn.read_tokens(self._tokenizer, usage))

    async def _awatched(self, turn: ChatTurn, chunks: ChatResponseAsyncGen) -> ChatResponseAsyncGen:
        usage: Usage | None = None
        with turn.turn.streaming() as chunk_came:
            async for chunk in chunks:
                chunk_came()
                usage = (usage or Usage()).updated(read_usage(chunk.raw))
                yield chunk
        if usage is not None:
            self._answered(turn, usage, await turn.aread_tokens(self._tokenizer, usage))


def _check_written(task: "asyncio.Task[None]") -> None:
    """Raise `RequestError` while an answer is being written in an event loop that cannot be waited for here."""
    if not task.done() and not task.get_loop().is_closed():
        raise RequestError("the last answer is still being streamed in another event loop; read it to its end first")
