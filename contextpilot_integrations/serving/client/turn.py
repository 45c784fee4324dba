"""One question of a client without any input or output: what to send, and what the chunks of the answer add up to."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from contextpilot_core import Message, Observation, Plan, PromptTokens, Source
from contextpilot_core.mirror import ProcessLock
from contextpilot_integrations.serving.chat import (
    SALT,
    Asked,
    Entry,
    Setting,
    Turn,
    Usage,
    contained,
    no_answer,
    read_usage,
    room_for,
    says_something,
    whole,
)
from contextpilot_integrations.serving.client.conversation import Conversation
from contextpilot_integrations.serving.client.pieces import AnswerPieces
from contextpilot_integrations.serving.tokens import PromptTokenizer, read_token_ids

REFUSED = frozenset({400, 422})

Wanted = Literal["usage", "token_ids"]
"""What may be asked of a server besides the answer: the tokens of the prompt, counted, or one by one."""

_FIELDS: Mapping[Wanted, str] = {"usage": "stream_options", "token_ids": "return_token_ids"}
_UNKNOWN: Mapping[Wanted, str] = {
    "usage": "its usage, and with it the hit rate, stays unknown",
    "token_ids": "the tokens of prompts are asked for elsewhere",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChatResult:
    """The answer to one question.

    ``ttft_ms``: milliseconds from sending to the first generated piece, None when nothing was generated.
    ``finish_reason`` None: the stream ended before the answer did, and the turn is not in the history.
    ``answer``: what was said, or what the model said when it refused.
    ``message``: the answer in OpenAI form, with its tool calls, refusal and thoughts (``reasoning_content`` or however
    the server names them) if there are any.
    ``prompt``: what was sent: the messages, or the text of a text prompt.
    ``observation``: cached tokens, predicted when the prompt was planned and as the server reported them.
    """

    answer: str
    plan: Plan
    prompt: tuple[Message, ...] | str
    usage: Usage
    ttft_ms: float | None
    finish_reason: str | None
    message: Message
    observation: Observation
    turn: Turn = field(repr=False, compare=False)

    @cached_property
    def sources(self) -> Mapping[int, Source]:
        """What every ``[Doc n]`` of the prompt stands for, of this turn and of all that it still shows."""
        return self.turn.sources


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a caller of a client asks for. ``options`` go to the client library untouched.

    ``is_text``: for a text prompt instead of a chat.
    """

    asked: Asked
    is_text: bool = False
    instructions: str
    session_id: str | None
    namespace: str
    options: Mapping[str, Any]


class ClientTurn:
    """Made for one question of one conversation; planned when made, recorded by `finish`."""

    def __init__(
        self,
        setting: Setting,
        conversation: Conversation,
        question: Question,
        clock: Callable[[], float],
        plan: Plan | None = None,
    ) -> None:
        """Plan the prompt, if ``plan`` is None. Raises `RequestError`, as ``engine.plan`` does."""
        self._conversation, self._question, self._setting, self._clock = conversation, question, setting, clock
        room = room_for(setting.window, question.options)
        self._turn = Turn(setting, conversation.history, question.asked, room=room, scale=conversation.scale, plan=plan)
        self._sent_at = clock()
        self._first_at: float | None = None
        self._pieces = AnswerPieces()
        self._finish_reason: str | None = None
        self._is_answered = False
        self._usage = Usage()
        self._token_ids: Sequence[int] | None = None

    @property
    def prompt(self) -> tuple[Message, ...] | str:
        """What to send: the messages of a chat, or the text of a text prompt."""
        if self._question.is_text:
            return whole("\n\n".join([message["content"] for message in self._turn.plan.messages]))
        return tuple(deepcopy(self._turn.prompt))  # the messages stay in the history

    @property
    def sources(self) -> Mapping[int, Source]:
        """What every ``[Doc n]`` of the prompt stands for."""
        return self._turn.sources

    def arguments(self, asked: Collection[Wanted]) -> dict[str, Any]:
        """Return the arguments of ``create`` and start the clock."""
        arguments: dict[str, Any] = {**self._question.options, "stream": True}
        if self._question.is_text:
            arguments["prompt"] = self.prompt
        else:
            arguments["messages"] = list(self.prompt)
        if "usage" in asked:
            arguments["stream_options"] = {"include_usage": True, **(arguments.get("stream_options") or {})}
        if "token_ids" in asked:
            arguments["extra_body"] = {"return_token_ids": True, **(arguments.get("extra_body") or {})}
        self._sent_at = self._clock()
        return arguments

    def sent(self) -> None:
        """Note that the server accepted the prompt: from now on it is in the cache."""
        self._turn.sent()

    def failed(self) -> None:
        """Note that the prompt never reached the model."""
        self._turn.failed()

    def feed(self, chunk: Any) -> str:
        """Take one chunk of the stream; return the text that it adds to the answer."""
        self._usage = self._usage.updated(read_usage(chunk))
        if self._token_ids is None:
            self._token_ids = read_token_ids(chunk)
        choices = getattr(chunk, "choices", None)
        choices = choices if isinstance(choices, (list, tuple)) else ()
        choice = next((each for each in choices if not getattr(each, "index", None)), None)  # the first may have none
        if choice is None:
            return ""
        self._is_answered = True
        reason = getattr(choice, "finish_reason", None)
        self._finish_reason = reason if reason and isinstance(reason, str) else self._finish_reason
        if self._question.is_text:
            text = self._pieces.add(getattr(choice, "text", None))
        else:
            delta = getattr(choice, "delta", None)
            text = self._pieces.add(getattr(delta, "content", None), delta)
        if self._first_at is None and self._pieces.has_begun:
            with contained("looking at the clock"):
                self._first_at = self._clock()
        return text

    def read_tokens(self, tokenizer: PromptTokenizer) -> PromptTokens | None:
        """Return the exact tokens of the prompt; waits for the token source. None: they cannot be told."""
        return tokenizer.read(
            self._turn.plan,
            self.prompt,
            token_ids=self._token_ids,
            prompt_tokens=self._usage.prompt_tokens,
            tools=self._question.options.get("tools"),
            template_options=self._extra("chat_template_kwargs"),
        )

    def finish(self, tokens: PromptTokens | None = None) -> ChatResult:
        """Return what came, tell the engine, and append the turn to the history. ``tokens``: those of the prompt.

        Not appended: an answer that broke off or says nothing, and one with tool calls, which no user message may
        follow (continue with ``[*result.prompt, result.message, <tool results>]``). What is appended is what was said:
        thoughts are for the continuation of their own turn, and servers refuse or drop them later.

        Raises:
            AnswerError: not a single piece of an answer came.
        """
        if not self._is_answered:
            self._turn.unanswered()
            raise no_answer()
        message, answer = whole(self._pieces.message), whole(self._pieces.text)
        ended = self._finish_reason is not None and "tool_calls" not in message
        if ended and not self._question.is_text and says_something(answer):
            self._remember({"role": "assistant", "content": answer})
        return ChatResult(
            answer=answer,
            plan=self._turn.plan,
            prompt=self.prompt,
            usage=self._usage,
            ttft_ms=self._milliseconds(),
            finish_reason=self._finish_reason,
            message=message,
            observation=self._turn.observe(self._usage, tokens, self._extra(SALT)),
            turn=self._turn,
        )

    def _milliseconds(self) -> float | None:
        waited = None
        if self._first_at is not None:
            with contained("looking at the clock"):
                waited = 1000.0 * (self._first_at - self._sent_at)
        return waited

    def _extra(self, name: str) -> Any:
        return (self._question.options.get("extra_body") or {}).get(name)

    def _remember(self, answer: Message) -> None:
        conversation, turn = self._conversation, self._turn
        conversation.scale = turn.scale(self._usage.prompt_tokens) or conversation.scale
        conversation.history = (*turn.head, *turn.history, turn.entry, Entry(answer))
        conversation.engine, conversation.last_plan = self._setting.engine, turn.plan


def may_refuse(error: Exception) -> bool:
    """Whether ``error`` is a server's refusal of the request, which something that was `Wanted` may have caused."""
    return getattr(error, "status_code", None) in REFUSED


class Wishes:
    """What one server is asked besides the answer; given up, the last first, until it accepts what is left.

    What it has accepted once it is always asked: a later refusal has another reason, and comes through.
    """

    def __init__(self, server: str, *wanted: Wanted) -> None:
        """Begin with all that is ``wanted``; ``server``: its name in logs."""
        self.present, self._server, self._is_settled, self._lock = wanted, server, False, ProcessLock()

    def fewer(self, asked: tuple[Wanted, ...], error: Exception) -> tuple[Wanted, ...] | None:
        """Return what to ask for instead after a refusal, the field that it names first; None where that helps not."""
        if self._is_settled or not asked or not may_refuse(error):
            return None
        named = [each for each in asked if _FIELDS[each] in str(error)]
        return tuple([each for each in asked if each != (named or asked)[-1]])

    def accepted(self, asked: tuple[Wanted, ...]) -> None:
        """Note that the server took a request with what was ``asked``; what was not is given up, and said once."""
        with self._lock:
            given_up = [each for each in self.present if each not in asked]
            if self._is_settled and given_up:
                return  # a request that was under way while another one was taken whole
            self.present, self._is_settled = asked, True
        for each in given_up:
            _log.warning("%s refuses %s: %s", self._server, _FIELDS[each], _UNKNOWN[each])
