"""Messages and texts by digest."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from contextpilot_core.checks import is_unicode
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.types import Message


def body_digest(body: str) -> bytes:
    """Return the identity of a body: SHA-256 of its UTF-8 form (lone surrogates included)."""
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()


def sendable(text: str) -> str:
    """Return a text as it can be sent: half a character (a surrogate) becomes U+FFFD; its length stays the same."""
    return text if is_unicode(text) else _HALVES.sub("\ufffd", text)


def distinct(keys: Sequence[Hashable]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions of first occurrences, and of repeats, both ascending."""
    seen: set[Hashable] = set()
    kept: list[int] = []
    repeats: list[int] = []
    for position, key in enumerate(keys):
        (repeats if key in seen else kept).append(position)
        seen.add(key)
    return tuple(kept), tuple(repeats)


SYSTEM_ROLES = frozenset({"system", "developer"})
ANSWER_ROLES = frozenset({"assistant", "model", "chatbot"})
"""Roles of what the model wrote; two of them are names that LlamaIndex has for it."""
READABLE_ROLES = frozenset({"user", "tool"})
"""Roles whose text may count as visible context: assistant and system messages never do (docs: rule 1)."""

_ENDLESS = "a message contains itself, or is nested too deeply; give plain JSON values"
_DEEPEST = 200
_MOST_VALUES = 1_000_000
_MOST_BITS = 4_096
_HALVES = re.compile("[\ud800-\udfff]")

Seal = Callable[[bytes], bytes]
"""Turns a digest into the form by which it is known: keyed, when processes share what they know of digests."""


class HistoryMessage(NamedTuple):
    """One message that stands before the new context, as it was when it was given.

    ``text`` is None where no hint may ever point. ``key`` finds what is known of it: a text that may be pointed to is
    recognised whatever role and fields it comes back with.
    """

    digest: bytes
    key: bytes
    text: str | None
    message: Message


def plain(digest: bytes) -> bytes:
    """Return the digest as it is: the seal of an engine that shares nothing."""
    return digest


def body_digests(bodies: Sequence[str], seal: Seal, memo: dict[str, bytes] | None = None) -> tuple[bytes, ...]:
    """Return the sealed digest of every body; ``memo``: those of a batch, in which bodies come again and again."""
    if memo is None:
        return tuple([seal(body_digest(body)) for body in bodies])
    for body in bodies:
        if body not in memo:
            memo[body] = seal(body_digest(body))
    return tuple([memo[body] for body in bodies])


def history_of(messages: Sequence[Message], instructions: str, seal: Seal) -> tuple[HistoryMessage, ...]:
    """Return the messages of a prompt before its new context, with ``instructions`` in front where none has a system.

    Raises:
        RequestTypeError: a message is no mapping with a ``role``.
        RequestError: ``instructions`` differ from the system message, or a message contains itself.
    """
    system: Message | None = None
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestTypeError(
                f"messages[{index}] must be a mapping with a 'role' (a str) and a 'content', got a "
                f"{type(message).__name__} without; give the history in OpenAI form"
            )
        if system is None and message["role"] in SYSTEM_ROLES:
            system = message
    if instructions and system is None:
        messages = ({"role": "system", "content": instructions}, *messages)
    elif instructions and system is not None and sendable(message_text(system) or "") != sendable(instructions):
        raise RequestError(
            f"instructions ({len(instructions)} characters) differ from the system message that messages already "
            "hold; a prompt has one: leave instructions empty, or give the same text"
        )
    return tuple([_history_message(message, seal) for message in messages])


def _history_message(message: Message, seal: Seal) -> HistoryMessage:
    message = _copied(message)
    text = message_text(message)
    text_digest = None if text is None else body_digest(text)
    digest = seal(message_digest(message, text_digest))
    if text_digest is None or message["role"] not in READABLE_ROLES:
        return HistoryMessage(digest, digest, None, message)
    return HistoryMessage(digest, seal(text_digest), text, message)


def _copied(message: Message) -> dict[str, Any]:
    """Return a message with all of its mappings and lists copied, as callers may change theirs before we render.

    Raises:
        RequestError: it could not be sent: it has no end, or holds a number that cannot be written.
    """
    copy: _Copy | None = None
    found = {}
    for key, value in message.items():
        if not isinstance(value, str) or not value.isascii():
            copy = copy or _Copy()
            value = copy.of(value, 0)
        found[key] = value
    return found


class _Copy:
    """The copy of one message; values that share a part many times over are counted as they would be written."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def of(self, value: Any, depth: int) -> Any:
        """Return a copy of a value that stands so deep in the message."""
        if isinstance(value, str):
            return sendable(value)
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise RequestError(_ENDLESS)
        if isinstance(value, (dict, Mapping)):
            return {key: self.of(entry, depth + 1) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.of(entry, depth + 1) for entry in value]
        if isinstance(value, tuple):
            return tuple([self.of(entry, depth + 1) for entry in value])
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise RequestError(f"a message holds a whole number of {value.bit_length()} bits; give it as text")
        return value


def message_text(message: Message) -> str | None:
    """Return a message's text: its content if that is a string or a list of exactly one text part, else None."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)) and len(content) == 1:
        part = content[0]
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
            return str(part["text"])
    return None


def message_digest(message: Message, text_digest: bytes | None = None) -> bytes:
    """Return the SHA-256 of a message: role, content and every other field that is not None.

    ``text_digest``: SHA-256 of the message's text, where the caller has it: a long text is then not read again.

    One text part equals the plain string, and an absent field equals None, as client libraries turn one into the
    other. Every part is framed, so no text can imitate another field. Raises `RequestError` for a message that
    contains itself.
    """
    role, content = message.get("role"), message.get("content")
    if len(message) == 2 and isinstance(role, str) and isinstance(content, str):
        return hashlib.sha256(_frame(role) + (text_digest or body_digest(content))).digest()
    extra = {key: value for key, value in message.items() if key not in ("role", "content") and value is not None}
    text = message_text(message)
    try:
        framed = _framed([role, extra, None if text is not None else content, text is not None])
    except (RecursionError, ValueError):  # of a number that is too long to be written
        raise RequestError(_ENDLESS) from None
    if text is not None and text_digest is None:
        text_digest = body_digest(text)
    return hashlib.sha256(framed + (text_digest or b"")).digest()


@lru_cache(maxsize=64)
def _frame(role: str) -> bytes:
    """Return the frame of a message that is text alone: histories hold mostly such, in few roles."""
    return _framed([role, {}, None, True])


def _framed(head: Sequence[object]) -> bytes:
    return f"{_Written().dump(head)}\n".encode("utf-8", "surrogatepass")


class HistoryDigest:
    """Digest of a message list, grown message by message: equal histories have equal values."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._hash = hashlib.sha256()
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Append a message."""
        self._hash.update(message_digest(message))

    @property
    def value(self) -> str:
        """The digest so far, as hexadecimal digits."""
        return self._hash.hexdigest()


class _Written:
    """One JSON text for anything, decided by its content alone: no address, no order of a set, no ``repr``."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def dump(self, value: object) -> str:
        """Return the text. Raises `RecursionError` for what has no end."""
        return json.dumps(self._plain(value), sort_keys=True, separators=(",", ":"))

    def _plain(self, value: object) -> object:
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        self._left -= 1
        if self._left < 0:
            raise RecursionError
        if isinstance(value, Mapping):
            return {
                key if isinstance(key, str) else f"\0{self.dump(key)}": self._plain(entry)
                for key, entry in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._plain(entry) for entry in value]
        if isinstance(value, (set, frozenset)):
            return sorted(self.dump(entry) for entry in value)
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": bytes(value).hex()}
        fields = getattr(value, "__dict__", None)
        return {"type": type(value).__qualname__, "fields": self._plain(fields) if fields else None}
