"""One question without any input or output: what to send, and what the chunks of the answer add up to."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from contextpilot_core import (
    ConfigError,
    ContextBlock,
    ContextRequest,
    Message,
    Observation,
    Plan,
    PromptTokens,
    ReuseEngine,
    Served,
)
from contextpilot_integrations.serving.chat import TokenCount, Usage, read_usage
from contextpilot_integrations.serving.client.conversation import Conversation, History
from contextpilot_integrations.serving.tokens import PromptTokenizer, read_token_ids

REFUSED = frozenset({400, 422})

Asked = Literal["usage", "token_ids"]
"""What may be asked of a server besides the answer: the tokens of the prompt, counted, or one by one."""


@dataclass(frozen=True, kw_only=True)
class ChatResult:
    """The answer to one question.

    ``ttft_ms``: milliseconds from sending to the first generated piece, None when nothing was generated.
    ``finish_reason`` None: the stream ended before the answer did, and the turn is not in the history.
    ``message``: the answer in OpenAI form, with its tool calls if the model made any.
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


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a caller of a client asks for. ``options`` go to the client library untouched.

    ``parts``: the question when it is more than a text. ``is_text``: for a text prompt instead of a chat.
    """

    blocks: Iterable[str | ContextBlock]
    query: str
    parts: tuple[Message, ...] = ()
    is_text: bool = False
    instructions: str
    session_id: str | None
    namespace: str
    options: Mapping[str, Any]

    def request(self, messages: tuple[Message, ...] = ()) -> ContextRequest:
        """Return the request to plan, on top of ``messages``."""
        return ContextRequest(
            blocks=self.blocks,  # type: ignore[arg-type]  # any iterable: the engine makes it a tuple
            query=self.query,
            instructions=self.instructions,
            messages=messages,
            session_id=self.session_id,
            namespace=self.namespace,
        )


@dataclass(frozen=True)
class Window:
    """The context window in tokens (None: never full), and how they are counted."""

    tokens: int | None
    count: TokenCount

    def __post_init__(self) -> None:
        """Check the size. Raises `ConfigError`."""
        if self.tokens is not None and (not isinstance(self.tokens, int) or self.tokens < 1):
            raise ConfigError(f"max_context_tokens={self.tokens!r} must be at least 1, or None for no limit; change it")


class Turn:
    """Made for one question of one conversation; planned when made, recorded by `finish`."""

    def __init__(
        self,
        engine: ReuseEngine,
        conversation: Conversation,
        question: Question,
        window: Window,
        clock: Callable[[], float],
        plan: Plan | None = None,
    ) -> None:
        """Plan the prompt, if ``plan`` is None. Raises `RequestError`, as ``engine.plan`` does."""
        self._engine, self._conversation, self._question, self._window = engine, conversation, question, window
        self._clock = clock
        self._earlier: list[Plan] = []  # of the history, where it was planned anew for this turn
        self._history, self.plan = self._fit(plan)
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
            return "\n\n".join(message["content"] for message in self.plan.messages)
        return self._history.prompt(self.plan, self._question.parts)

    def arguments(self, asked: Collection[Asked]) -> dict[str, Any]:
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
        for plan in (*self._earlier, self.plan):
            self._engine.commit(plan)

    def failed(self) -> None:
        """Note that the prompt never reached the model."""
        for plan in (self.plan, *self._earlier):
            self._engine.abandon(plan)

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
            self.plan,
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
            plan=self.plan,
            prompt=self.prompt,
            usage=self._usage,
            ttft_ms=None if self._first_at is None else 1000.0 * (self._first_at - self._sent_at),
            finish_reason=self._finish_reason,
            message=dict(message),
            observation=self._engine.observe(self.plan, self._served(tokens)),
        )

    def _served(self, tokens: PromptTokens | None) -> Served:
        return Served(
            prompt_tokens=self._usage.prompt_tokens,
            cached_tokens=self._usage.cached_tokens,
            tokens=tokens,
            cache_salt=self._extra("cache_salt"),
        )

    def _extra(self, name: str) -> Any:
        return (self._question.options.get("extra_body") or {}).get(name)

    def _remember(self, answer: Message) -> None:
        conversation, history = self._conversation, self._history
        if self._window.tokens is not None:
            sent = history.prompt(self.plan, self._question.parts)
            conversation.learn_scale(sent, self._usage.prompt_tokens, self._window.count)
        conversation.history = history.extended(self.plan, self._question.parts, answer)
        conversation.engine = self._engine

    def _fit(self, plan: Plan | None) -> tuple[History, Plan]:
        """Plan; when the prompt and the answer would not fit, without the oldest turns, down to half the window."""
        history = self._conversation.history
        if self._conversation.engine not in (None, self._engine):
            history = self._moved(history)
        if plan is None:
            plan = self._plan(self._question.request(history.messages))
        if self._window.tokens is None:
            return history, plan
        room = self._window.tokens - self._answer_tokens()
        while history.turns and self._size(history.prompt(plan, self._question.parts)) > room:
            self._engine.abandon(plan)
            history = history.trimmed(self._window.tokens / 2, self._size, self._planned_again)
            plan = self._plan(self._question.request(history.messages))
        return history, plan

    def _plan(self, request: ContextRequest) -> Plan:
        return self._engine.plan(
            request.blocks,
            query=request.query,
            instructions=request.instructions,
            messages=request.messages,
            session_id=request.session_id,
            namespace=request.namespace,
            commit=False,
        )

    def _planned_again(self, history: History) -> History:
        """Return the history with every turn planned again; they are sent with the prompt of this turn."""
        for earlier in reversed(self._earlier):
            self._engine.abandon(earlier)
        self._earlier.clear()
        replayed = History(history.head)
        for turn in history.turns:
            again = self._plan(replayed.again(turn))
            self._earlier.append(again)
            replayed = replayed.extended(again, turn.parts, turn.answer)
        return replayed

    def _moved(self, history: History) -> History:
        """Return a history of another engine, as it was sent, with the turns that this engine renders alike planned.

        It does not where the other one had forgotten messages, or knew other ones. Such a turn stays as it is, for
        this engine a message that others wrote: its blocks are known where they stand whole, its labels are in doubt.
        """
        moved = History(history.head)
        for turn in history.turns:
            again = self._engine.plan(**vars(moved.again(turn)), order=turn.order, commit=False)
            replayed = moved.extended(again, turn.parts, turn.answer)
            if replayed.turns[-1].context == turn.context:
                self._earlier.append(again)
                moved = replayed
            else:
                self._engine.abandon(again)
                moved = moved.with_turn(turn)
        return moved

    def _size(self, messages: tuple[Message, ...]) -> float:
        return self._conversation.size(messages, self._window.count)

    def _answer_tokens(self) -> int:
        asked = (self._question.options.get(name) for name in ("max_completion_tokens", "max_tokens"))
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
