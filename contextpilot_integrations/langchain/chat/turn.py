"""One turn of the chat as LangChain's messages, without any input or output: what to send, and what to keep of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from contextpilot_core import RequestError, RequestTypeError
from contextpilot_core.prompt import message_text
from contextpilot_integrations.langchain.chat.answers import with_sources
from contextpilot_integrations.langchain.chat.events import atell, tell
from contextpilot_integrations.langchain.chat.history import as_sent, entry_of, message_of, reported_scale
from contextpilot_integrations.langchain.chat.llm import ModelCall
from contextpilot_integrations.langchain.documents import DocumentBlock, document_of
from contextpilot_integrations.serving.chat import (
    Asked,
    Entry,
    Setting,
    Turn,
    TurnFigures,
    contained,
    read_usage,
    room_for,
    says_something,
)
from contextpilot_integrations.serving.tokens import PromptTokenizer

_Answer = TypeVar("_Answer")


class ChatTurn:
    """Made for one question on top of the messages of its session; planned when made.

    ``prompt`` and ``arguments`` go to the model. ``replaced``: the session's messages, where `added` replaces them.
    """

    def __init__(
        self,
        setting: Setting,
        tokenizer: PromptTokenizer | None,
        messages: Sequence[BaseMessage],
        question: str,
        blocks: Sequence[DocumentBlock],
        call: ModelCall,
    ) -> None:
        """Plan the prompt. Raises `RequestError`: an empty question, or the engine refuses."""
        if not question.strip():
            raise RequestError(f"the question is empty ({len(question)} characters); give the words of the user")
        history, asked = [entry_of(message) for message in messages], Asked(question, tuple(blocks))
        setting = _beside(setting, history)
        room = room_for(setting.window, call.options)
        scale = 1.0 if room is None else reported_scale(history)
        self.turn = Turn(setting, history, asked, room=room, scale=scale)
        self.replaced, self.arguments = (messages if self.turn.rewritten else None), call.arguments
        with self.turn.opening():
            self._labelled = {label: document_of(source) for label, source in self.turn.sources.items()}
        self._prefix, self._tokenizer, self._call = setting.prefix, tokenizer, call

    def answered(self, answer: _Answer) -> _Answer:
        """Return an answer, or the first piece of one, with the documents that the labels of its prompt stand for."""
        return with_sources(answer, self._labelled)

    @property
    def prompt(self) -> list[BaseMessage]:
        """The messages to send: our system message, unless the history brings one, the history, the question."""
        head = [*self._prefix, *[entry.message for entry in self.turn.head if entry.message is not None]]
        sent = [as_sent(self._message(entry)) for entry in (*self.turn.history, self.turn.entry)]
        return [*[SystemMessage(str(message["content"])) for message in head], *sent]

    def added(self, answer: BaseMessage) -> list[BaseMessage]:
        """Return what to append to the history; a refusal beside an empty content stands there as the content.

        Nothing for tool calls, which no user message may follow, and nothing for an answer that says nothing.

        Raises:
            RequestTypeError: the answer is no message.
        """
        if not isinstance(answer, BaseMessage):
            raise RequestTypeError(
                f"llm answered with a {type(answer).__name__}; give a chat model, and put parsers behind the chat: "
                "create_contextpilot_chat(retriever, llm) | parser"
            )
        if (refusal := answer.additional_kwargs.get("refusal")) and not says_something(answer.content):
            answer = answer.model_copy(update={"content": refusal})
        if _calls_tools(answer) or not says_something(answer.content):
            return []
        before = self.turn.history if self.turn.rewritten else []
        return [*[self._message(entry) for entry in (*before, self.turn.entry)], answer]

    def figures(self, answer: BaseMessage) -> TurnFigures:
        """Tell the engine what the model reported with its answer, and return the figures of this turn.

        Waits for the prompt's tokens, where the engine needs them.
        """
        usage, tokenizer = read_usage(answer), self._tokenizer
        tokens = None if tokenizer is None else self._call.read_tokens(tokenizer, self.turn.plan, self.prompt, usage)
        return self.turn.figures(usage, tokens, self._call.cache_salt)

    async def afigures(self, answer: BaseMessage) -> TurnFigures:
        """As `figures`, without keeping the event loop from other work."""
        if self._tokenizer is None:
            return self.figures(answer)
        return await asyncio.to_thread(self.figures, answer)

    def tell(self, answer: BaseMessage, config: RunnableConfig) -> None:
        """Send the figures to the callbacks of the run that ``config`` belongs to."""
        with contained("telling the figures of a turn"):
            tell(self.figures(answer), config)

    async def atell(self, answer: BaseMessage, config: RunnableConfig) -> None:
        """As `tell`."""
        with contained("telling the figures of a turn"):
            await atell(await self.afigures(answer), config)

    def _message(self, entry: Entry) -> BaseMessage:
        return message_of(entry)


def _calls_tools(answer: BaseMessage) -> bool:
    """Tell whether an answer is sent with tool calls, among them those whose arguments are broken off."""
    calls = [getattr(answer, name, None) for name in ("tool_calls", "invalid_tool_calls")]
    return any([*calls, answer.additional_kwargs.get("tool_calls"), answer.additional_kwargs.get("function_call")])


def _beside(setting: Setting, history: Sequence[Entry]) -> Setting:
    """Let the instructions stand before a history that has other system messages: each is kept where it is."""
    first = next((entry.message for entry in history if entry.is_system and entry.message is not None), None)
    if not setting.instructions or first is None or message_text(first) == setting.instructions:
        return setting
    return replace(setting, instructions="", prefix=({"role": "system", "content": setting.instructions},))
