"""Prompts at the door: whatever the caller has becomes parts (tools, then messages) that can be compared."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.types import Message

TOOLS = "tools"
SYSTEM = ("system", "developer")
"""Roles of system messages."""
SHORTEST_SHARED = 20  # characters; shorter units (labels, fences, headings) repeat by chance

_CUT = re.compile(r"(?P<always>\n+|(?=\b(?:Document|NodeWithScore|TextNode)\())|(?<=[.!?])[ \t]+(?=\S)|(?<=[。！？])")
_FIELDS = ("name", "refusal")


@dataclass(frozen=True, kw_only=True)
class PromptRecord:
    """One prompt with what is known about it.

    prompt: the text, or the messages in OpenAI form. tools: the tool definitions sent with it. question: what the
    user asked (found more surely when given). generated: what the model returned, raw, reasoning included.
    """

    prompt: str | Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    question: str = ""
    generated: str = ""


PromptLike: TypeAlias = str | Sequence[Message] | Mapping[str, Any] | PromptRecord
"""A text, messages, the body of a request (``messages`` or ``prompt``, and ``tools``), or a `PromptRecord`."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tools, one message, or a whole text."""

    role: str
    text: str

    @property
    def shown(self) -> str:
        """The part as it is counted: templates differ, so the frame is only the role on a line."""
        if self.role == TOOLS and not self.text:
            return ""
        return f"{self.role}\n{self.text}\n" if self.role else self.text


@dataclass(frozen=True, slots=True)
class Unit:
    """A line or sentence: ``part`` is the index of its part, ``start`` its character offset there."""

    part: int
    start: int
    text: str

    @property
    def end(self) -> int:
        """Offset behind its last character."""
        return self.start + len(self.text)

    @property
    def long(self) -> bool:
        """Long enough that the same text twice is no chance."""
        return len(self.text) >= SHORTEST_SHARED


def as_record(prompt: PromptLike, position: int) -> PromptRecord:
    """Return ``prompt`` as a record. Raises `RequestTypeError` for anything that is no `PromptLike`."""
    if isinstance(prompt, PromptRecord):
        record = prompt
    elif isinstance(prompt, Mapping):
        inner = prompt.get("messages", prompt.get("prompt"))
        if inner is None:
            raise RequestTypeError(
                f"prompts[{position}] is a mapping without 'messages' or 'prompt'; give the body of a request, "
                "or a list of messages"
            )
        record = PromptRecord(prompt=inner, tools=prompt.get("tools") or ())
    else:
        record = PromptRecord(prompt=prompt)
    _check(record, position)
    return record


def _check(record: PromptRecord, position: int) -> None:
    prompt = record.prompt
    if not isinstance(prompt, str):
        if not _is_list(prompt):
            raise RequestTypeError(
                f"prompts[{position}] is a {type(prompt).__name__}; give a text, a list of messages or a request body"
            )
        for number, message in enumerate(prompt):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise RequestTypeError(
                    f"prompts[{position}][{number}] is a {type(message).__name__}; every message must be a mapping "
                    'with a \'role\' and a \'content\', like {"role": "user", "content": "..."}'
                )
            for name in ("content", "tool_calls"):
                _check_field(message.get(name), f"the {name} of prompts[{position}][{number}]", name == "content")
    for name in ("question", "generated"):
        if not isinstance(getattr(record, name), str):
            raise RequestTypeError(f"the {name} of prompts[{position}] must be a str; give '' for none")
    if not _is_list(record.tools) or not all(isinstance(tool, Mapping) for tool in record.tools):
        raise RequestTypeError(f"the tools of prompts[{position}] must be a list of mappings in OpenAI form")


def _check_field(value: object, name: str, text: bool) -> None:
    if value is not None and not _is_list(value) and not (text and isinstance(value, str)):
        what = "a text, a list of parts" if text else "a list"
        raise RequestTypeError(f"{name} is a {type(value).__name__}; give {what}, or None")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def same_kind(records: Sequence[PromptRecord]) -> None:
    """Raise `RequestError` when texts and message lists are mixed: they can never share a prefix."""
    kinds = {isinstance(record.prompt, str) for record in records}
    if len(kinds) > 1:
        raise RequestError("prompts mixes texts and message lists; give one kind, rendered alike")


def read_parts(record: PromptRecord, position: int) -> tuple[Part, ...]:
    """Return the parts of a prompt. Raises `RequestTypeError` where it holds what cannot be written as JSON."""
    try:
        return parts_of(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestTypeError(
            f"prompts[{position}] holds what JSON cannot ({type(error).__name__}): it contains itself, is nested too "
            "deeply, or has odd keys or numbers; give plain JSON values"
        ) from None


def parts_of(record: PromptRecord) -> tuple[Part, ...]:
    """Return the parts in the order in which chat templates show them: the tools (always a part), then the messages.

    Call ids and reasoning fields are left out, as most templates leave them out.
    """
    head = Part(TOOLS, "\n".join(dump(tool) for tool in record.tools))
    if isinstance(record.prompt, str):
        return head, Part("", record.prompt)
    return (head, *(Part(m["role"], _shown(m)) for m in record.prompt))


def _shown(message: Message) -> str:
    content = message.get("content")
    pieces = [content] if isinstance(content, str) else [_piece(piece) for piece in content or ()]
    for call in message.get("tool_calls") or ():
        called = call.get("function", call) if isinstance(call, Mapping) else call
        pieces.append(dump(called))
    pieces += [f"{name}: {message[name]}" for name in _FIELDS if message.get(name)]
    return "\n".join(pieces)


def _piece(piece: Any) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Mapping) and isinstance(piece.get("text"), str):
        return str(piece["text"])
    return dump(piece)


def dump(value: Any) -> str:
    """Return JSON with the keys in the order given, as servers render it."""
    return json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)


def units_of(parts: Sequence[Part]) -> tuple[Unit, ...]:
    """Cut messages into lines and sentences, white space and separators at the ends left out; tools are no text.

    Short sentences stay together, so that a line of them is not taken for chance.
    """
    units: list[Unit] = []
    for number, part in enumerate(parts):
        if part.role == TOOLS:
            continue
        start = 0
        for cut in (*_CUT.finditer(part.text), None):
            end = cut.start() if cut else len(part.text)
            if cut and cut.lastgroup is None and end - start < SHORTEST_SHARED:
                continue
            piece = part.text[start:end]
            text = piece.strip().rstrip(", ")
            text = text[:-1] if text.endswith(")]") else text  # the end of a printed list
            if text:
                units.append(Unit(number, start + piece.index(text), text))
            start = cut.end() if cut else end
    return tuple(units)


def common_parts(a: Sequence[Part], b: Sequence[Part]) -> tuple[int, int]:
    """Return where two prompts first differ: (index of the part, character offset in its text).

    The index is the number of parts of the shorter prompt when one continues the other.
    """
    for number, (left, right) in enumerate(zip(a, b, strict=False)):
        if left.role != right.role or left.text != right.text:
            return number, common_length(left.text, right.text) if left.role == right.role else 0
    return min(len(a), len(b)), 0


def common_length(a: str, b: str) -> int:
    """Return how many characters two texts share at their heads."""
    return common_from(a, b, 0, len(a))


def common_from(a: str, b: str, start: int, end: int) -> int:
    """Return how many characters two texts share from ``start`` on, up to ``end`` at most; it costs as many."""
    low, high, step = start, max(start, min(len(a), len(b), end)), 64
    while low < high:  # ever wider as long as they are equal
        wide = min(low + step, high)
        if a[low:wide] != b[low:wide]:
            high = wide - 1
            break
        low, step = wide, 2 * step
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low - start


def head_text(parts: Sequence[Part], at: tuple[int, int]) -> str:
    """Return the text of ``parts`` up to ``at``, as it is counted."""
    number, offset = at
    text = "".join(part.shown for part in parts[:number])
    if number < len(parts) and offset:
        part = parts[number]
        text += part.shown[: len(part.shown) - len(part.text) - bool(part.role) + offset]
    return text
