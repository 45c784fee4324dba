"""One question of a client without any input or output: what to send, and what the chunks of the answer add up to."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from contextpilot_core import ContextBlock, Message, Observation, Plan, PromptTokens, Source
from contextpilot_integrations.serving.chat import SALT, Asked, Entry, Setting, Turn, Usage, read_usage
from contextpilot_integrations.serving.client.conversation import Conversation
from contextpilot_integrations.serving.tokens import PromptTokenizer, read_token_ids

REFUSED = frozenset({400, 422})

Wanted = Literal["usage", "token_ids"]
"""What may be asked of a server besides the answer: the tokens of the prompt, counted, or one by one."""


@dataclass(frozen=True, kw_only=True)
class ChatResult:
    """The answer to one question.

    ``ttft_ms``: milliseconds from sending to the first generated piece, None when nothing was generated.
    ``finish_reason`` None: the stream ended before the answer did, and the turn is not in the history.
    ``message``: the answer in OpenAI form, with its tool calls if the model made any.
    ``prompt``: what was sent: the messages, or the text of a text prompt.
    ``observation``: cached tokens, predicted when the prompt was planned and as the server reported them.
    ``sources``: what every ``[Doc n]`` of the prompt stands for, of this turn and of all that it still shows.
    """

    answer: str
    plan: Plan
    prompt: tuple[Message, ...] | str
    usage: Usage
    ttft_ms: float | None
    finish_reason: str | None
    message: Message
    observation: Observation
    sources: Mapping[int, Source]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a caller of a client asks for. ``options`` go to the client library untouched.

    ``parts``: the question when it is more than a text. ``is_text``: for a text prompt instead of a chat.
    """

    blocks: tuple[str | ContextBlock, ...]
    query: str
    parts: tuple[Message, ...] = ()
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
        asked = Asked(question.query, question.blocks, question.parts)
        room = None if setting.window is None else setting.window - _answer_tokens(question.options)
        self._turn = Turn(setting, conversation.history, asked, room=room, scale=conversation.scale, plan=plan)
        self._sent_at = clock()
        self._first_at: float | None = None
        self._pieces: list[str] = []
        self._tool_calls: dict[int, dict[str, Any]] = {}
        self._finish_reason: str | None = None
        self._usage = Usage()
        self._token_ids: Sequence[int] | None = None

    @property
    def prompt(self) -> tuple[Message, ...] | str:
        """What to send: the messages of a chat, or the text of a text prompt."""
        if self._question.is_text:
            return "\n\n".join([message["content"] for message in self._turn.plan.messages])
        return tuple(deepcopy(self._turn.prompt))  # the messages stay in the history

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
        self._usage = _merged(self._usage, read_usage(chunk))
        if self._token_ids is None:
            self._token_ids = read_token_ids(chunk)
        choice = next((c for c in getattr(chunk, "choices", None) or () if getattr(c, "index", 0) == 0), None)
        if choice is None:
            return ""
        self._finish_reason = getattr(choice, "finish_reason", None) or self._finish_reason
        delta = choice if self._question.is_text else choice.delta
        text = getattr(delta, "text" if self._question.is_text else "content", None) or ""
        calls = getattr(delta, "tool_calls", None) or ()
        if self._first_at is None and (text or calls or _reasoning(delta)):
            self._first_at = self._clock()
        for call in calls:
            _add_tool_call(self._tool_calls, call)
        if text:
            self._pieces.append(text)
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

        Not appended: an answer that broke off, and one with tool calls, which no user message may follow (continue
        with ``[*result.prompt, result.message, <tool results>]``).
        """
        answer = "".join(self._pieces)
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if self._tool_calls:
            message["tool_calls"] = [call for _, call in sorted(self._tool_calls.items())]
        elif self._finish_reason is not None and not self._question.is_text:
            self._remember(message)
        return ChatResult(
            answer=answer,
            plan=self._turn.plan,
            prompt=self.prompt,
            usage=self._usage,
            ttft_ms=None if self._first_at is None else 1000.0 * (self._first_at - self._sent_at),
            finish_reason=self._finish_reason,
            message=dict(message),
            observation=self._turn.observe(self._usage, tokens, self._extra(SALT)),
            sources=self._turn.sources,
        )

    def _extra(self, name: str) -> Any:
        return (self._question.options.get("extra_body") or {}).get(name)

    def _remember(self, answer: Message) -> None:
        conversation, turn = self._conversation, self._turn
        conversation.scale = turn.scale(self._usage.prompt_tokens) or conversation.scale
        conversation.history = (*turn.head, *turn.history, turn.entry, Entry(answer))
        conversation.engine, conversation.last_plan = self._setting.engine, turn.plan


def _answer_tokens(options: Mapping[str, Any]) -> int:
    asked = (options.get(name) for name in ("max_completion_tokens", "max_tokens"))
    return next((tokens for tokens in asked if isinstance(tokens, int)), 0)


def may_refuse(error: Exception) -> bool:
    """Whether ``error`` is a server's refusal of the request, which something that was `Asked` may have caused."""
    return getattr(error, "status_code", None) in REFUSED


def _merged(old: Usage, new: Usage) -> Usage:
    return replace(old, **{name: value for name, value in vars(new).items() if value is not None})


def _reasoning(delta: Any) -> bool:
    return bool(getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None))


def _add_tool_call(calls: dict[int, dict[str, Any]], delta: Any) -> None:
    call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = delta.id or call["id"]
    if delta.function is not None:
        call["function"]["name"] += delta.function.name or ""
        call["function"]["arguments"] += delta.function.arguments or ""
