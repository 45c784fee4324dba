"""One turn of the chat without any input or output: what to send, and what to keep of it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from time import perf_counter
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from contextpilot_core import ConfigError, Message, Plan, RequestError, RequestTypeError, ReuseEngine, TokenCounter
from contextpilot_core.prompt import HistoryDigest
from contextpilot_integrations.langchain.chat.history import (
    TurnContext,
    as_openai,
    as_sent,
    context_message,
    context_of,
    split_turns,
)
from contextpilot_integrations.langchain.chat.llm import ModelCall
from contextpilot_integrations.langchain.documents import as_block, by_relevance
from contextpilot_integrations.serving.chat import TurnFigures, message_tokens, observe, read_usage
from contextpilot_integrations.serving.tokens import PromptTokenizer


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """What all turns of a chat share.

    ``window``: tokens of prompt and answer together, None for no limit. ``tokenizer``: where the engine follows events.
    """

    engine: ReuseEngine
    instructions: str
    namespace: str
    window: int | None
    count: TokenCounter
    tokenizer: PromptTokenizer | None

    def __post_init__(self) -> None:
        """Check the window. Raises `ConfigError`."""
        window = self.window
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise ConfigError(f"max_context_tokens={window!r} must be at least 1, or None for no limit; change it")

    def counted(self, messages: Sequence[Message]) -> int:
        """Return the counted tokens of a prompt of these messages and the instructions."""
        return self.count(self.instructions) + sum(message_tokens(message, self.count) for message in messages)


class ChatTurn:
    """Made for one question on top of the messages of its session; planned when made.

    ``prompt`` is what to send; ``kept`` the messages of the session in it. They are the caller's, unless the window
    was full, or the store dropped or changed what hints name: then ``rewritten`` is true, and ``kept`` replaces them.
    """

    def __init__(
        self,
        settings: ChatSettings,
        messages: Sequence[BaseMessage],
        question: str,
        documents: Sequence[Document],
        *,
        session_id: str | None,
        call: ModelCall,
    ) -> None:
        """Plan the prompt. Raises `RequestError`: an empty question, or the engine refuses."""
        started = perf_counter()
        if not question.strip():
            raise RequestError(f"the question is empty ({len(question)} characters); give the words of the user")
        blocks = tuple(as_block(document) for document in by_relevance(documents))
        self._settings, self._session_id, self._call = settings, session_id, call
        self._asked = TurnContext(question, blocks, 0)
        self.kept, self.rewritten = self._sound(messages)
        self.plan = self._plan(self._asked, self.kept)
        if self._engine_forgot():
            settings.engine.abandon(self.plan)
            self._remind_engine()
            self.plan = self._plan(self._asked, self.kept)
        if settings.window is not None:
            self._fit(settings.window, settings.window - call.answer_tokens)
        asked = replace(self._asked, tokens=settings.counted(self._with_question(self.kept)))
        self._message = self._rendered(self.plan, asked, self.kept)
        self._plan_seconds = perf_counter() - started

    @property
    def prompt(self) -> list[BaseMessage]:
        """The messages to send: our system message, unless the history brings one, the history, the question."""
        head: list[BaseMessage] = []
        if self._settings.instructions and not any(isinstance(message, SystemMessage) for message in self.kept):
            head.append(SystemMessage(self._settings.instructions))
        return [*head, *map(as_sent, self.kept), as_sent(self._message)]

    @property
    def arguments(self) -> dict[str, Any]:
        """What goes to the model with it."""
        return self._call.arguments

    @contextmanager
    def sending(self) -> Iterator[Callable[[], None]]:
        """Tell the engine whether the model has had the prompt: it has when the block ends without an error.

        Yields what a stream calls with its first chunk: from then on it has, whatever happens.
        """
        started = False

        def start() -> None:
            nonlocal started
            if not started:
                started = True
                self._sent()

        try:
            yield start
        except BaseException:
            if not started:
                self._settings.engine.abandon(self.plan)
            raise
        start()

    def _sent(self) -> None:
        engine = self._settings.engine
        if engine.commit(self.plan):
            return
        # The answer took longer than `in_flight_seconds`, and the engine has forgotten what it planned.
        again = self._plan(self._asked, self.kept)
        if again.messages == self.plan.messages:
            engine.commit(again)
        else:
            engine.abandon(again)

    def added(self, answer: BaseMessage) -> list[BaseMessage]:
        """Return what to append to the history: nothing for tool calls, which no user message may follow.

        Raises:
            RequestTypeError: the answer is no message.
        """
        if not isinstance(answer, BaseMessage):
            raise RequestTypeError(
                f"llm answered with a {type(answer).__name__}; give a chat model, and put parsers behind the chat: "
                "create_contextpilot_chat(retriever, llm) | parser"
            )
        if getattr(answer, "tool_calls", None):
            return []
        return [*(self.kept if self.rewritten else ()), self._message, answer]

    def figures(self, answer: BaseMessage) -> TurnFigures:
        """Tell the engine what the model reported with its answer, and return the figures of this turn.

        Waits for the prompt's tokens, where the engine needs them.
        """
        usage, tokenizer = read_usage(answer), self._settings.tokenizer
        return observe(
            self._settings.engine,
            self.plan,
            usage,
            plan_seconds=self._plan_seconds,
            tokens=None if tokenizer is None else self._call.read_tokens(tokenizer, self.plan, self.prompt, usage),
            cache_salt=self._call.cache_salt,
        )

    async def afigures(self, answer: BaseMessage) -> TurnFigures:
        """As `figures`, without keeping the event loop from other work."""
        if self._settings.tokenizer is None:
            return self.figures(answer)
        return await asyncio.to_thread(self.figures, answer)

    def _sound(self, messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], bool]:
        """Return the messages, from the first on whose hints name a history that is no more planned again, if any."""
        kept: list[BaseMessage] = []
        digest, changed = HistoryDigest(), False
        for message in messages:
            context = context_of(message)
            if context is not None and (changed or context.base not in ("", digest.value)):
                plan = self._plan(context, kept)
                message, changed = self._rendered(plan, context, kept), True
                self._settings.engine.commit(plan)  # sent with the prompt of this turn
            kept.append(message)
            digest.add(as_openai(message))
        return kept, changed

    def _rendered(self, plan: Plan, context: TurnContext, history: Sequence[BaseMessage]) -> BaseMessage:
        base = HistoryDigest(map(as_openai, history)).value if plan.names_history else ""
        return context_message(_question_text(plan), replace(context, base=base), self._settings.engine.config)

    def _engine_forgot(self) -> bool:
        """Whether a text is about to be sent that a message of ours shows: after a restart, or a long pause."""
        hinted = {hint.position for hint in self.plan.hints}
        sent = {self._asked.blocks[position].text for position in self.plan.order if position not in hinted}
        if not sent or not self._settings.engine.config.dedup:
            return False
        contexts = (context_of(message) for message in self.kept)
        return any(block.text in sent for context in contexts if context is not None for block in context.blocks)

    def _remind_engine(self) -> None:
        """Plan the turns of the history again: where that gives the same message, the engine knows it from now on."""
        engine = self._settings.engine
        for position, message in enumerate(self.kept):
            context = context_of(message)
            if context is not None:
                plan = self._plan(context, self.kept[:position])
                same = _question_text(plan) == message.content
                engine.commit(plan) if same else engine.abandon(plan)

    def _fit(self, window: int, room: int) -> None:
        """While the prompt is larger than its room, drop the oldest turns down to half the window, and plan again."""
        scale = self._scale()
        counted = self._settings.counted
        while split_turns(self.kept)[1] and scale * counted(self._with_question(self.kept)) > room:
            self._settings.engine.abandon(self.plan)
            self.kept, self.rewritten = self._shortened(self.kept, window / 2 / scale), True
            self.plan = self._plan(self._asked, self.kept)

    def _scale(self) -> float:
        """Return how far the counter is off: what the model last reported for a prompt, per counted token."""
        for question, answer in zip(self.kept[-2::-1], self.kept[:0:-1], strict=True):
            context = context_of(question)
            usage = answer.usage_metadata if isinstance(answer, AIMessage) else None
            if context is not None and context.tokens > 0 and usage is not None and usage["input_tokens"] > 0:
                return usage["input_tokens"] / context.tokens
        return 1.0

    def _shortened(self, messages: Sequence[BaseMessage], tokens: float) -> list[BaseMessage]:
        """Return the messages without their oldest turns, as few as bring them to ``tokens``, but one at least.

        The turns that stay are planned again, as their hints may name what is gone; that can make them larger.
        """
        engine, counted = self._settings.engine, self._settings.counted
        head, turns = split_turns(messages)
        while True:
            turns = turns[1:]
            if turns and counted([as_openai(message) for message in chain(head, *turns)]) > tokens:
                continue
            kept, plans = self._planned_again(head, turns)
            fits = not turns or counted([as_openai(message) for message in kept]) <= tokens
            for plan in plans:
                engine.commit(plan) if fits else engine.abandon(plan)  # committed: sent with the prompt of this turn
            if fits:
                return kept

    def _planned_again(
        self, head: Sequence[BaseMessage], turns: Sequence[Sequence[BaseMessage]]
    ) -> tuple[list[BaseMessage], list[Plan]]:
        """Return the messages on top of ``head``, with our user messages made anew, and the plans for them."""
        kept, plans = list(head), []
        for first, *rest in turns:
            context = context_of(first)
            if context is not None:
                plan = self._plan(context, kept)
                plans.append(plan)
                first = self._rendered(plan, context, kept)
            kept += [first, *rest]
        return kept, plans

    def _with_question(self, messages: Sequence[BaseMessage]) -> list[Message]:
        return [*map(as_openai, messages), self.plan.messages[-1]]

    def _plan(self, context: TurnContext, messages: Sequence[BaseMessage]) -> Plan:
        return self._settings.engine.plan(
            context.blocks,
            query=context.query,
            instructions=self._settings.instructions,
            messages=[as_openai(message) for message in messages],
            session_id=self._session_id,
            namespace=self._settings.namespace,
            commit=False,
        )


def _question_text(plan: Plan) -> str:
    return str(plan.messages[-1]["content"])
