"""One turn of the chat as LangChain's messages, without any input or output: what to send, and what to keep of it."""

import asyncio
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, SystemMessage

from contextpilot_core import RequestError, RequestTypeError
from contextpilot_integrations.langchain.chat.history import as_sent, entry_of, message_of, reported_scale
from contextpilot_integrations.langchain.chat.llm import ModelCall
from contextpilot_integrations.langchain.documents import as_block, by_relevance
from contextpilot_integrations.serving.chat import Asked, Entry, Setting, Turn, TurnFigures, read_usage, says_something
from contextpilot_integrations.serving.tokens import PromptTokenizer


class ChatTurn:
    """Made for one question on top of the messages of its session; planned when made.

    ``prompt`` and ``arguments`` go to the model. When ``rewritten`` is true, `added` replaces the session's messages.
    """

    def __init__(
        self,
        setting: Setting,
        tokenizer: PromptTokenizer | None,
        messages: Sequence[BaseMessage],
        question: str,
        documents: Sequence[Document],
        call: ModelCall,
    ) -> None:
        """Plan the prompt. Raises `RequestError`: an empty question, or the engine refuses."""
        if not question.strip():
            raise RequestError(f"the question is empty ({len(question)} characters); give the words of the user")
        history = [entry_of(message) for message in messages]
        asked = Asked(question, tuple([as_block(document) for document in by_relevance(documents)]))
        room = None if setting.window is None else setting.window - call.answer_tokens
        self.turn = Turn(setting, history, asked, room=room, scale=reported_scale(history))
        self.rewritten, self.arguments = self.turn.rewritten, call.arguments
        self._config, self._tokenizer, self._call = setting.engine.config, tokenizer, call

    @property
    def prompt(self) -> list[BaseMessage]:
        """The messages to send: our system message, unless the history brings one, the history, the question."""
        head = [SystemMessage(str(entry.message["content"])) for entry in self.turn.head if entry.message is not None]
        return [*head, *[as_sent(self._message(entry)) for entry in (*self.turn.history, self.turn.entry)]]

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
        if getattr(answer, "tool_calls", None) or not says_something(answer.content):
            return []
        before = self.turn.history if self.rewritten else []
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

    def _message(self, entry: Entry) -> BaseMessage:
        return message_of(entry, self._config)
