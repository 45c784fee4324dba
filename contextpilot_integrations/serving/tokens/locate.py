"""Exact tokens of a prompt: its ids, and where the blocks of its context end in them (docs: "Token spans").

A block's own tokens appear in the prompt unchanged but for up to `MERGES` at each end, which may merge with their
neighbours. A block that is not found exactly once where it must be is unknown, never guessed.
"""

import hashlib
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from operator import index
from typing import Any

from contextpilot_core import Message, Plan, PromptTokens
from contextpilot_core.checks import able, whole_number
from contextpilot_core.mirror import ProcessLock
from contextpilot_integrations.recent import Recent
from contextpilot_integrations.serving.tokens.sources import TokenSource

_log = logging.getLogger(__name__)

MERGES = 2
"""Tokens at each end of a piece that may differ in the prompt."""

SHORTEST = 4
"""Fewer tokens in common prove nothing."""

TEMPLATE_TOKENS = 64
"""What a chat template may put after the last message, or between two."""


class PromptTokenizer:
    """Tells the exact tokens of planned prompts; pieces are tokenised once. Thread-safe, and waits for its source.

        tokenizer = PromptTokenizer(HuggingFaceTokens(AutoTokenizer.from_pretrained(model)))
        tokens = tokenizer.read(plan, plan.messages)

    Nothing is raised: what cannot be told is None, and the log says once why.
    """

    def __init__(self, source: TokenSource, *, max_pieces: int = 4_096) -> None:
        """Use ``source``; the tokens of the ``max_pieces`` pieces used last are kept. Raises `ConfigError`."""
        able("source", source, ("chat", "text", "piece"), "a HuggingFaceTokens, a ServerTokens or the like")
        whole_number("max_pieces", max_pieces, "4_096 is usual")
        self._source = source
        self._pieces: Recent[bytes, bytes] = Recent(max_pieces)
        self._lock = ProcessLock()
        self._said: set[str] = set()

    def read(
        self,
        plan: Plan,
        prompt: Sequence[Message] | str,
        *,
        token_ids: Sequence[int] | None = None,
        prompt_tokens: int | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> PromptTokens | None:
        """Return the tokens of ``prompt``, in which ``plan`` was sent, or None.

        Args:
            plan: its context is looked for.
            prompt: the messages, or the text of a text prompt.
            token_ids: the prompt's, where the response told them; the source is then asked for pieces only.
            prompt_tokens: as the response reported them; other numbers than that are refused.
            tools: those of the request: they are part of the prompt.
            template_options: the request's ``chat_template_kwargs``.
        """

        def ask() -> Iterable[int]:
            return self._prompt_ids(prompt, tools, template_options or {}) if token_ids is None else token_ids

        try:
            return self._read(plan, prompt, self._ask(ask), prompt_tokens)
        except _UnknownError as error:
            self._say(str(error))
        except Exception as error:  # noqa: BLE001  # whoever asks has an answer that must not be lost
            self._say(f"they could not be read ({type(error).__name__})")
        return None

    def _read(
        self, plan: Plan, prompt: Sequence[Message] | str, ids: list[int], prompt_tokens: int | None
    ) -> PromptTokens:
        if prompt_tokens is not None and prompt_tokens != len(ids):
            raise _UnknownError("the token source gives another number of prompt tokens than the server reports")
        start, ends = self._locate(plan, _packed(ids), prompt)
        return PromptTokens(token_ids=ids, start=start, ends=ends)

    def _prompt_ids(
        self, prompt: Sequence[Message] | str, tools: Sequence[Any] | None, template_options: Mapping[str, Any]
    ) -> Iterable[int]:
        if isinstance(prompt, str):
            return self._source.text(prompt)
        return self._source.chat(prompt, tools=tools, template_options=template_options)

    def _locate(
        self, plan: Plan, packed: bytes, prompt: Sequence[Message] | str
    ) -> tuple[int | None, list[int | None]]:
        """Tokens before the context, and up to the end of each item; found from the last item backwards."""
        items = _items(plan)
        ends: list[int | None] = [None] * len(items)
        room = _room_behind(plan.context.text, prompt) if items else None
        if room is None:
            return None, ends
        limit, start = len(packed) // _WIDTH, None
        try:
            for number in reversed(range(len(items))):
                label, body = _label_and_body(items[number])
                piece = self._piece(body)
                core = piece[_MERGED:-_MERGED]
                if len(core) < SHORTEST * _WIDTH:
                    room += _size(items[number]) + 1
                    continue
                at = _only(packed, core, limit, room)
                if at is None:
                    break
                ends[number] = _agreeing(packed, at, piece)
                limit, room = at, 2 * MERGES + _size(label) + 1
                if number == 0:
                    start = _before(packed, at, core, self._piece(items[0]))
        except _UnknownError as error:
            self._say(str(error))
        return start, ends

    def _piece(self, text: str) -> bytes:
        name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return self._pieces.get(name, lambda: _packed(self._ask(lambda: self._source.piece(text))))

    def _ask(self, question: Callable[[], Iterable[int]]) -> list[int]:
        """Return the ids of an answer, which may be any iterable; iterating may fail, too."""
        try:
            return _checked(question())
        except Exception as error:  # a name of the kind only: the message may hold text of documents
            raise _UnknownError(f"the token source failed ({type(error).__name__})") from error

    def _say(self, reason: str) -> None:
        with self._lock:
            new = reason not in self._said
            self._said.add(reason)
        if new:
            _log.warning("exact tokens of prompts are unknown: %s", reason)


class _UnknownError(Exception):
    """The tokens cannot be told."""


_WIDTH = array("i").itemsize
_MERGED = MERGES * _WIDTH


def _checked(token_ids: Iterable[int]) -> list[int]:
    """Return ids as a list. Raises `TypeError` for what has no order or no ids, `ValueError` beyond 32 bits."""
    if isinstance(token_ids, (str, bytes, bytearray, memoryview, Set, Mapping)):
        raise TypeError(f"a {type(token_ids).__name__} holds no token ids")
    ids = [index(token) for token in token_ids]
    if not all(0 <= token < 2**31 for token in ids):
        raise ValueError("a token id must fit 31 bits")
    return ids


def _packed(ids: list[int]) -> bytes:
    return array("i", ids).tobytes()


def _items(plan: Plan) -> list[str]:
    text, ends = plan.context.text, plan.context.ends
    return [text[first:end] for first, end in zip((0, *(end + 1 for end in ends)), ends, strict=False)]


def _label_and_body(item: str) -> tuple[str, str]:
    """The first line of a block, which depends on its place, and the rest; a hint is one line."""
    label, line_end, rest = item.partition("\n")
    return (label, line_end + rest) if line_end else ("", item)


def _size(text: str) -> int:
    """More than the tokens of ``text``, or as many."""
    return len(text.encode("utf-8", "surrogatepass"))


def _room_behind(context: str, prompt: Sequence[Message] | str) -> int | None:
    """How many tokens may follow the context in the prompt; None when it is not there, or not once."""
    room = TEMPLATE_TOKENS
    for message in [prompt] if isinstance(prompt, str) else reversed(prompt):
        before, found, behind = _text(message).rpartition(context)
        if found:
            return None if context in before else room + _size(behind)
        room += _size(str(message)) + TEMPLATE_TOKENS
    return None


def _text(message: Message | str) -> str:
    content = message if isinstance(message, str) else message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _places(packed: bytes, part: bytes, low: int = 0, high: int | None = None) -> Iterator[int]:
    """Where ``part`` stands, not across tokens. All in bytes."""
    at = packed.find(part, low, high)
    while at >= 0:
        if at % _WIDTH == 0:
            yield at
        at = packed.find(part, at + 1, high)


def _only(packed: bytes, core: bytes, limit: int, room: int) -> int | None:
    """The place (in tokens) of ``core`` at most ``room`` tokens before ``limit``; None unless it is the only one."""
    low = max(0, limit * _WIDTH - len(core) - room * _WIDTH)
    places = list(islice(_places(packed, core, low, limit * _WIDTH), 2))
    return places[0] // _WIDTH if len(places) == 1 else None


def _agreeing(packed: bytes, at: int, piece: bytes) -> int:
    """How far (in tokens) the prompt agrees with ``piece``, whose core stands at ``at``."""
    first = at * _WIDTH - _MERGED
    end = len(piece) - _MERGED
    while end < len(piece) and packed[first + end : first + end + _WIDTH] == piece[end : end + _WIDTH]:
        end += _WIDTH
    return (first + end) // _WIDTH


def _before(packed: bytes, at: int, core: bytes, item: bytes) -> int | None:
    """Tokens before the item whose core stands at ``at``, if it begins with a token of its own."""
    lead = next(_places(item, core), None)
    if lead is None or packed[max(0, at * _WIDTH - lead) : at * _WIDTH] != item[:lead]:
        return None
    return at - lead // _WIDTH
