"""One turn of a chat without any input or output: which messages to send, and what the memory should hold after it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import ToolOutput

from contextpilot_core import ContextBlock, Plan, PromptTokens, ReuseEngine
from contextpilot_integrations.llama_index.chat.history import (
    Record,
    as_sent,
    is_forgotten,
    openai_form,
    planned_message,
    sound,
    without_oldest,
)
from contextpilot_integrations.llama_index.nodes import context_blocks
from contextpilot_integrations.serving.chat import SALT, TurnFigures, Usage, message_tokens, observe
from contextpilot_integrations.serving.tokens import PromptTokenizer


@dataclass(frozen=True)
class Turn:
    """One question. ``rewritten``: ``history``, on which it stands, is not what the memory holds.

    ``extra_body``: that of its request.
    """

    plan: Plan
    nodes: list[NodeWithScore]
    history: list[ChatMessage]
    rewritten: bool
    user: ChatMessage
    prompt: list[ChatMessage]
    extra_body: Mapping[str, Any]
    plan_seconds: float

    @property
    def sources(self) -> list[ToolOutput]:
        """What was retrieved, in the form in which LlamaIndex's chat engines report it."""
        question = {"message": self.plan.request.query}
        return [ToolOutput(tool_name="retriever", content=str(self.nodes), raw_input=question, raw_output=self.nodes)]


class Turns:
    """Plans the turns of one conversation."""

    def __init__(
        self,
        engine: ReuseEngine,
        *,
        prefix: Sequence[ChatMessage],
        limit: int,
        tokenizer: Callable[[str], Sequence[Any]],
        namespace: str,
        exact: PromptTokenizer | None,
    ) -> None:
        """Plan with ``engine``; a prompt has at most ``limit`` tokens of ``tokenizer``.

        ``exact`` tells the tokens of prompts to an engine that follows events.
        """
        self._engine, self._prefix, self._limit = engine, list(prefix), limit
        self._namespace, self._exact = namespace, exact
        self._count = lru_cache(maxsize=4_096)(lambda text: len(tokenizer(text)))  # of a long history, the new alone
        # Tokens that the server reports per token counted here; 1 until it did.
        self._scale = 1.0

    def turn(
        self,
        question: str,
        nodes: list[NodeWithScore],
        stored: list[ChatMessage],
        session_id: str | None,
        extra_body: Mapping[str, Any],
    ) -> Turn:
        """Plan a question on top of what the memory holds, without the oldest turns when the window is full."""

        def plan(asked: str, blocks: Sequence[ContextBlock], history: Sequence[ChatMessage]) -> Plan:
            return self._engine.plan(
                blocks,
                query=asked,
                messages=openai_form([*self._prefix, *history]),
                session_id=session_id,
                namespace=self._namespace,
                commit=False,
            )

        def again(record: Record, history: Sequence[ChatMessage]) -> ChatMessage:
            repeated = plan(record.question, record.blocks, history)
            message = planned_message(repeated, history)
            self._engine.commit(repeated)
            return message

        started = perf_counter()
        blocks = context_blocks(nodes)
        history = sound(stored, again)
        current = plan(question, blocks, history)
        if is_forgotten(current, history):
            self._engine.abandon(current)
            history = sound(history, again, forgotten=True)
            current = plan(question, blocks, history)
        while history and self._size([*self._prefix, *history, planned_message(current, history)]) > self._limit:
            self._engine.abandon(current)
            history = self._trimmed(history, again)
            current = plan(question, blocks, history)
        user = planned_message(current, history)
        return Turn(
            plan=current,
            nodes=nodes,
            history=history,
            rewritten=history != stored,
            user=user,
            prompt=[*self._prefix, *map(as_sent, (*history, user))],
            extra_body=extra_body,
            plan_seconds=perf_counter() - started,
        )

    @contextmanager
    def sending(self, turn: Turn) -> Iterator[None]:
        """Take the plan back when the prompt does not reach the model."""
        try:
            yield
        except BaseException:
            self.failed(turn)
            raise

    def failed(self, turn: Turn) -> None:
        """Note that the prompt did not reach the model."""
        self._engine.abandon(turn.plan)

    def sent(self, turn: Turn) -> None:
        """Note that the prompt reached the model."""
        if self._engine.commit(turn.plan):
            return
        # The answer took longer than a plan may be in flight: the message is made known again.
        request = turn.plan.request
        repeated = self._engine.plan(
            request.blocks,
            query=request.query,
            messages=request.messages,
            session_id=request.session_id,
            namespace=request.namespace,
        )
        repeated.messages  # noqa: B018 - rendering is what makes it known

    def read_tokens(self, turn: Turn, usage: Usage) -> PromptTokens | None:
        """Return the exact tokens of a prompt, where the engine needs them; waits for their source."""
        if self._exact is None:
            return None
        return self._exact.read(
            turn.plan,
            openai_form(turn.prompt),
            prompt_tokens=usage.prompt_tokens,
            template_options=turn.extra_body.get("chat_template_kwargs"),
        )

    async def aread_tokens(self, turn: Turn, usage: Usage) -> PromptTokens | None:
        """As `read_tokens`, without keeping the event loop from other work."""
        if self._exact is None:
            return None
        return await asyncio.to_thread(self.read_tokens, turn, usage)

    def figures(self, turn: Turn, usage: Usage, tokens: PromptTokens | None) -> TurnFigures:
        """Tell the engine what the server reported with the answer, and return the figures of this turn."""
        return observe(
            self._engine,
            turn.plan,
            usage,
            plan_seconds=turn.plan_seconds,
            tokens=tokens,
            cache_salt=turn.extra_body.get(SALT),
        )

    def learn_scale(self, turn: Turn, usage: Usage) -> None:
        """Compare the prompt with what the server says about it, if it does."""
        counted = self._size(turn.prompt) / self._scale
        if usage.prompt_tokens and counted:
            self._scale = usage.prompt_tokens / counted

    def _trimmed(
        self, history: list[ChatMessage], again: Callable[[Record, Sequence[ChatMessage]], ChatMessage]
    ) -> list[ChatMessage]:
        """Return the history without its oldest turns, as few as bring it to half the limit, but at least one."""
        kept = sound(without_oldest(history), again)
        while kept and self._size([*self._prefix, *kept]) > self._limit / 2:
            kept = sound(without_oldest(kept), again)
        return kept

    def _size(self, messages: Sequence[ChatMessage]) -> float:
        return self._scale * sum(message_tokens(message, self._count) for message in openai_form(messages))
