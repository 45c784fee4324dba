"""A chat over retrieved documents whose context stays in its history: each prompt starts with the one before."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from contextpilot_core import RequestTypeError, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_core.checks import able
from contextpilot_integrations.langchain.chat.finding import Condense, Finder
from contextpilot_integrations.langchain.chat.history import (
    GetHistory,
    MemoryHistories,
    MemoryHistory,
    MessageHistory,
    aload,
    asave,
    made_whole,
    save,
)
from contextpilot_integrations.langchain.chat.llm import model_call
from contextpilot_integrations.langchain.chat.pieces import Pieces
from contextpilot_integrations.langchain.chat.turn import ChatTurn
from contextpilot_integrations.langchain.documents import DocumentBlock
from contextpilot_integrations.langchain.sessions import session_of
from contextpilot_integrations.serving.chat import Held, Setting, Tenants, TurnLocks, check_parts, whole
from contextpilot_integrations.serving.tokens import PromptTokenizer, TokenSource

ChatInput: TypeAlias = str | Mapping[str, Any] | HumanMessage


def create_contextpilot_chat(
    retriever: Runnable[str, list[Document]],
    llm: Runnable[Any, BaseMessage],
    engine: ReuseEngine | None = None,
    *,
    history: GetHistory | None = None,
    instructions: str = "",
    condense_question: Condense | None = None,
    document_prompt: BasePromptTemplate[str] | None = None,
    session_id: str | None = None,
    namespace: str = "default",
    tenants: Tenants | None = None,
    tokens: TokenSource | None = None,
    max_context_tokens: int | None = None,
    token_counter: TokenCounter = estimate_tokens,
    max_sessions: int = 1_000,
) -> "ContextPilotChat":
    """Return a chat: question in, the model's message out; ``invoke``, ``stream``, ``batch`` and their async twins.

        chat.invoke("And in winter?", {"configurable": {"session_id": "user-17"}})

    Every prompt is the one before, its answer, and a user message with what the history does not show yet: context,
    note, question. Answers, streamed ones in their first piece, carry what the labels stand for (`sources_of`); the
    history does not keep that. The session of a call is found as by `ContextPilotRetriever`; without one there is no
    history. Calls of one session wait for each other. A turn that fails, breaks off or ends in tool calls is not kept.
    The custom event "contextpilot_turn" tells callbacks the figures of each answer (`TurnFigures`).

    Args:
        retriever: finds documents for the question, best first.
        llm: a chat model, or one with ``bind_tools`` and the like; its retries and errors are its own.
        engine: plans the prompts; all pipelines in front of one model server should share it. None: a new one.
        history: session id -> a LangChain chat message history (or what has ``messages``, ``add_messages`` and
            ``clear``). None: in this process. The messages hold the documents, also for planning them again.
        instructions: the system message. System messages that a history brings are kept where they are; the first one
            stands in place of equal instructions, and behind others.
        condense_question: makes a question that stands alone, which the retriever is asked in place of the user's: a
            Runnable that takes ``input`` and ``chat_history``, as the prompt of LangChain's
            ``create_history_aware_retriever`` does, or a callable that takes the two, perhaps asynchronous. It sees
            the questions without their documents; an empty answer changes nothing. None: the user's words are looked
            for.
        document_prompt: what the model is shown of a document, as in LangChain's chains; its text alone with None.
            Documents of which it makes the same are one.
        session_id: the session of calls that name none.
        namespace: orders are shared inside it only.
        tenants: sends every prompt under the ``cache_salt`` of the namespace (vLLM, SGLang), in the ``extra_body`` of
            the call, which takes over what the model (`ChatOpenAI`) or its bindings have there. None: without.
        tokens: tells an engine that follows KV events (``ReuseEngine(mirror=...)``) the exact tokens of prompts:
            `HuggingFaceTokens` or `ServerTokens`. None: nobody does, and plans rely on the estimate.
        max_context_tokens: the context window; a prompt that would not fit with its answer (``max_tokens`` of the call
            or the model) drops whole oldest turns until the history takes at most half of it. None: no limit.
        token_counter: counts a text's tokens for that; corrected by what the model reports.
        max_sessions: histories kept in this process; the least recently used is forgotten.

    Raises:
        ConfigError: a value breaks its rule.
    """
    check_parts(
        engine=engine,
        instructions=instructions,
        session_id=session_id,
        namespace=namespace,
        tenants=tenants,
        tokens=tokens,
    )
    able("llm", llm, ("invoke", "ainvoke", "stream", "astream"), "a chat model of LangChain, or another Runnable")
    if history is not None:
        able("history", history, ["__call__"], "a function from a session id to its message history, or None")
    engine = ReuseEngine() if engine is None else engine
    setting = Setting(
        engine=engine, count=token_counter, window=max_context_tokens, namespace=namespace, instructions=instructions
    )
    tokenizer = PromptTokenizer(tokens) if tokens is not None and engine.follows_events else None
    history = MemoryHistories(max_sessions) if history is None else history
    finder = Finder(retriever, condense_question, document_prompt)
    return ContextPilotChat(finder, llm, setting, tokenizer, history, session_id, tenants)


class ContextPilotChat(Runnable[ChatInput, BaseMessage]):
    """A chat that `create_contextpilot_chat` made. Its input is a str, a user message, or ``{"input": <question>}``.

    ``session_id`` as an argument of a call names the conversation; other arguments go to the model.
    """

    def __init__(
        self,
        finder: Finder,
        llm: Runnable[Any, BaseMessage],
        setting: Setting,
        tokenizer: PromptTokenizer | None,
        get_history: GetHistory,
        session_id: str | None,
        tenants: Tenants | None,
    ) -> None:
        self._finder, self._llm, self._setting, self._tokenizer = finder, llm, setting, tokenizer
        self._get_history, self._session_id, self._tenants = get_history, session_id, tenants
        self._locks = TurnLocks()

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the prompts."""
        return self._setting.engine

    def history(self, session_id: str) -> list[BaseMessage]:
        """Return a session's messages with their contexts."""
        return list(self._get_history(session_id).messages)

    def reset(self, session_id: str) -> bool:
        """Forget a session's messages; an answer under way does not come back. Returns whether there were any."""
        self._locks.void(session_id)
        history = self._get_history(session_id)
        known = bool(history.messages)
        history.clear()
        return known

    def invoke(self, input: ChatInput, config: RunnableConfig | None = None, **kwargs: Any) -> BaseMessage:
        """Return the answer to a question."""
        session_id = self._session(config, kwargs)

        def answer(asked: ChatInput, run_manager: CallbackManagerForChainRun, config: RunnableConfig) -> BaseMessage:
            history, question = self._history(session_id), _question(asked)
            messages = history.messages
            turn = self._turn(messages, question, self._finder.find(question, messages, config), session_id, kwargs)
            with turn.turn.sending():
                reply = made_whole(self._llm.invoke(turn.prompt, config, **turn.arguments))
            save(history, turn.added(reply), held, turn.replaced)
            turn.tell(reply, config)
            return turn.answered(reply)

        with self._locks.hold(session_id) as held:
            return self._call_with_config(answer, input, config)

    async def ainvoke(self, input: ChatInput, config: RunnableConfig | None = None, **kwargs: Any) -> BaseMessage:
        """Return the answer to a question."""
        session_id = self._session(config, kwargs)

        async def answer(
            asked: ChatInput, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig
        ) -> BaseMessage:
            history, question = self._history(session_id), _question(asked)
            messages = await aload(history)
            blocks = await self._finder.afind(question, messages, config)
            turn = self._turn(messages, question, blocks, session_id, kwargs)
            with turn.turn.sending():
                reply = made_whole(await self._llm.ainvoke(turn.prompt, config, **turn.arguments))
            await asave(history, turn.added(reply), held, turn.replaced)
            await turn.atell(reply, config)
            return turn.answered(reply)

        async with self._locks.ahold(session_id) as held:
            return await self._acall_with_config(answer, input, config)

    def stream(self, input: ChatInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[BaseMessage]:
        """Yield the answer to a question piece by piece; its session waits until the stream ends or is closed."""
        session_id = self._session(config, kwargs)

        def answer(
            held: Held, inputs: Iterator[ChatInput], run_manager: CallbackManagerForChainRun, config: RunnableConfig
        ) -> Iterator[BaseMessage]:
            history, question = self._history(session_id), _question(next(inputs))
            messages = history.messages
            turn = self._turn(messages, question, self._finder.find(question, messages, config), session_id, kwargs)
            pieces = Pieces()
            with turn.turn.streaming() as chunk_came:
                for chunk in self._llm.stream(turn.prompt, config, **turn.arguments):
                    chunk_came()
                    yield turn.answered(chunk) if pieces.is_empty else chunk
                    pieces.add(chunk)
            if (reply := pieces.message) is not None:
                save(history, turn.added(reply), held, turn.replaced)
                turn.tell(reply, config)

        def in_turn() -> Iterator[BaseMessage]:
            with self._locks.hold(session_id) as held:
                chunks: Any = self._transform_stream_with_config(iter([input]), partial(answer, held), config)
                with closing(chunks):
                    for chunk in chunks:
                        yield chunk
                        held.keep()

        return in_turn()

    def astream(
        self, input: ChatInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[BaseMessage]:
        """Yield the answer to a question piece by piece, as `stream`."""
        session_id = self._session(config, kwargs)

        async def answer(
            held: Held,
            inputs: AsyncIterator[ChatInput],
            run_manager: AsyncCallbackManagerForChainRun,
            config: RunnableConfig,
        ) -> AsyncIterator[BaseMessage]:
            history, question = self._history(session_id), _question(await anext(inputs))
            messages = await aload(history)
            blocks = await self._finder.afind(question, messages, config)
            turn = self._turn(messages, question, blocks, session_id, kwargs)
            pieces = Pieces()
            with turn.turn.streaming() as chunk_came:
                async for chunk in self._llm.astream(turn.prompt, config, **turn.arguments):
                    chunk_came()
                    yield turn.answered(chunk) if pieces.is_empty else chunk
                    pieces.add(chunk)
            if (reply := pieces.message) is not None:
                await asave(history, turn.added(reply), held, turn.replaced)
                await turn.atell(reply, config)

        async def in_turn() -> AsyncIterator[BaseMessage]:
            async with self._locks.ahold(session_id) as held:
                chunks: Any = self._atransform_stream_with_config(_once(input), partial(answer, held), config)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        yield chunk
                        held.keep()

        return in_turn()

    def _session(self, config: RunnableConfig | None, kwargs: dict[str, Any]) -> str | None:
        """Take the session id out of the arguments of a call, or find it elsewhere."""
        return session_of(ensure_config(config), explicit=kwargs.pop("session_id", None), fallback=self._session_id)

    def _history(self, session_id: str | None) -> MessageHistory:
        return MemoryHistory() if session_id is None else self._get_history(session_id)

    def _turn(
        self,
        messages: list[BaseMessage],
        question: str,
        blocks: list[DocumentBlock],
        session_id: str | None,
        kwargs: Mapping[str, Any],
    ) -> ChatTurn:
        call = model_call(self._llm, kwargs, self._tenants, self._setting.namespace)
        setting = replace(self._setting, session_id=session_id)
        return ChatTurn(setting, self._tokenizer, messages, question, blocks, call)


def _question(asked: ChatInput) -> str:
    question: Any = asked.get("input") if isinstance(asked, Mapping) else asked
    if isinstance(question, HumanMessage):
        question = question.content
    if isinstance(question, list) and question and all([isinstance(_text(part), str) for part in question]):
        question = "".join(map(_text, question))
    if not isinstance(question, str):
        raise RequestTypeError(
            f"the question must be a str, a HumanMessage with text, or a mapping with one of them under 'input', got "
            f"{type(asked).__name__} with {type(question).__name__}; parts that are no text cannot be sent: convert it"
        )
    return whole(question)


def _text(part: Any) -> Any:
    """Return the text of a part of a content; not a str where it is something else."""
    return part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part


async def _once(value: ChatInput) -> AsyncIterator[ChatInput]:
    yield value
