"""One turn of a chat as LlamaIndex's messages: what to send, what the memory gets."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import ToolOutput

from contextpilot_core import PromptTokens
from contextpilot_integrations.llama_index.chat.finding import Found
from contextpilot_integrations.llama_index.chat.history import as_sent, entry_of, made_whole, message_of, openai_form
from contextpilot_integrations.llama_index.chat.responses import (
    ContextPilotResponse,
    ContextPilotStreamingResponse,
    NodesByLabel,
)
from contextpilot_integrations.llama_index.chat.template import ContextTemplate
from contextpilot_integrations.llama_index.nodes import context_blocks, in_prompt_order, nodes_of
from contextpilot_integrations.serving.chat import (
    SALT,
    Asked,
    Held,
    Setting,
    Turn,
    TurnFigures,
    Usage,
    says_something,
    whole,
)
from contextpilot_integrations.serving.tokens import PromptTokenizer


class ChatTurn:
    """Made for one question on top of what the memory holds; planned when made.

    When ``rewritten`` is true, `TurnMemory` puts ``history`` and the question in place of what the memory holds.
    ``nodes_by_label`` is what every label of the prompt stands for.
    """

    def __init__(
        self,
        setting: Setting,
        question: str,
        found: Found,
        stored: Sequence[ChatMessage],
        *,
        template: ContextTemplate | None,
        room: int,
        scale: float,
        extra_body: Mapping[str, Any],
    ) -> None:
        """Plan a prompt of at most ``room`` tokens; ``extra_body``: that of its request. Raises `RequestError`."""
        blocks = context_blocks(found.nodes)
        asked = Asked(question, blocks, frame=template.around(question) if template is not None and blocks else None)
        self.turn = Turn(setting, [entry_of(message) for message in stored], asked, room=room, scale=scale)
        self._prefix, self._extra_body = setting.prefix, extra_body
        self._query, self.rewritten = found.query, self.turn.rewritten
        with self.turn.opening():
            self.nodes = in_prompt_order(found.nodes, self.turn.plan.blocks)
            self.nodes_by_label: NodesByLabel = {label: nodes_of(each) for label, each in self.turn.sources.items()}
            *self.history, self.user = [message_of(entry) for entry in (*self.turn.history, self.turn.entry)]

    @property
    def sources(self) -> list[ToolOutput]:
        """What was retrieved, in the form in which LlamaIndex's chat engines report it."""
        question = {"message": self._query}
        return [ToolOutput(tool_name="retriever", content=str(self.nodes), raw_input=question, raw_output=self.nodes)]

    def response(self, answer: ChatMessage) -> ContextPilotResponse:
        """Return an answer as the caller gets it."""
        return ContextPilotResponse(
            whole(answer.content or ""),
            sources=self.sources,
            source_nodes=self.nodes,
            nodes_by_label=self.nodes_by_label,
        )

    def streaming(self, **streams: Any) -> ContextPilotStreamingResponse:
        """Return an answer that is being streamed: ``chat_stream`` or ``achat_stream``."""
        return ContextPilotStreamingResponse(
            sources=self.sources, source_nodes=self.nodes, nodes_by_label=self.nodes_by_label, **streams
        )

    def prompt(self, prefix: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the messages to send, behind ``prefix``."""
        return [*map(as_sent, (*prefix, *self.history, self.user))]

    def read_tokens(self, tokenizer: PromptTokenizer | None, usage: Usage) -> PromptTokens | None:
        """Return the exact tokens of the prompt, where the engine needs them; waits for their source."""
        if tokenizer is None:
            return None
        return tokenizer.read(
            self.turn.plan,
            [*self._prefix, *openai_form(map(as_sent, (*self.history, self.user)))],
            prompt_tokens=usage.prompt_tokens,
            template_options=self._extra_body.get("chat_template_kwargs"),
        )

    async def aread_tokens(self, tokenizer: PromptTokenizer | None, usage: Usage) -> PromptTokens | None:
        """As `read_tokens`, without keeping the event loop from other work."""
        return None if tokenizer is None else await asyncio.to_thread(self.read_tokens, tokenizer, usage)

    def figures(self, usage: Usage, tokens: PromptTokens | None) -> TurnFigures:
        """Tell the engine what the server reported with the answer, and return the figures of this turn."""
        return self.turn.figures(usage, tokens, self._extra_body.get(SALT))


class TurnMemory:
    """The memory as an answer gets there: together with its question, so that it holds a turn whole or not at all.

    Not at all: an answer that says nothing, and one that was under way when the conversation was reset.
    """

    def __init__(self, memory: BaseMemory, turn: ChatTurn, held: Held) -> None:
        self._memory, self._rewritten, self._held = memory, turn.rewritten, held
        self._messages = [*(turn.history if turn.rewritten else ()), turn.user]

    def put(self, answer: ChatMessage) -> None:
        """Append the turn, or replace everything by its messages where they were rewritten."""
        answer = made_whole(answer)
        write = self._memory.set if self._rewritten else self._memory.put_messages
        if says_something(answer.content):
            self._held.record(partial(write, [*self._messages, answer]), self._memory.reset)

    async def aput(self, answer: ChatMessage) -> None:
        """As `put`."""
        answer = made_whole(answer)
        write = self._memory.aset if self._rewritten else self._memory.aput_messages
        if says_something(answer.content):
            await self._held.arecord(partial(write, [*self._messages, answer]), self._memory.areset)
