"""The door of the engine: a caller's request is checked and normalised here, once; inside there are only digests.

Everything that can be refused is refused here, before any state changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from contextpilot_core.config import EngineConfig
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.prompt.messages import (
    SYSTEM_ROLES,
    HistoryMessage,
    Seal,
    _history_message,
    body_digest,
    distinct,
    message_text,
    plain,
)
from contextpilot_core.types import ContextBlock, ContextRequest, Message

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request at rest: bodies and digests by position, distinct positions, repeats, and the history."""

    request: ContextRequest
    bodies: tuple[str, ...]
    digests: tuple[bytes, ...]
    positions: tuple[int, ...]
    repeats: tuple[int, ...]
    history: tuple[HistoryMessage, ...]


def prepare(
    request: ContextRequest, config: EngineConfig, digests: dict[str, bytes] | None = None, *, seal: Seal = plain
) -> Prepared:
    """Check and normalise one request; ``digests`` is a memo that a batch shares, ``seal`` closes every digest.

    Raises:
        RequestTypeError: a value has the wrong type (one string as blocks, a block that is no text, ...).
        RequestError: a value breaks its rule (an empty id, instructions that differ from the system message).
    """
    if not isinstance(request, ContextRequest):
        raise RequestTypeError(f"a request must be a ContextRequest, got {_kind(request)}; build one")
    blocks = _items("blocks", request.blocks, "strings or ContextBlocks, best first")
    messages = _items("messages", request.messages, "messages in OpenAI form")
    _text("query", request.query, "give '' for none")
    _text("instructions", request.instructions, "give '' for none")
    _text("namespace", request.namespace, "give 'default', or the tenant's name")
    _unicode("namespace", request.namespace)
    for name in ("session_id", "request_id"):
        _identifier(name, getattr(request, name))
    bodies = tuple([_body(index, block, config) for index, block in enumerate(blocks)])
    keys = _digests(bodies, digests, seal)
    if config.dedup:
        positions, repeats = distinct(keys)
    else:
        positions, repeats = tuple(range(len(keys))), ()
    history = _history(messages, request.instructions, seal)
    messages = tuple([entry.message for entry in history[len(history) - len(messages) :]])
    if blocks is not request.blocks or messages:
        request = ContextRequest(
            blocks=blocks,
            query=request.query,
            instructions=request.instructions,
            messages=messages,
            session_id=request.session_id,
            request_id=request.request_id,
            namespace=request.namespace,
        )
    return Prepared(request, bodies, keys, positions, repeats, history)


def _items(name: str, value: Iterable[_T], what: str) -> tuple[_T, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, (str, bytes, Mapping, ContextBlock)) or not isinstance(value, Iterable):
        raise RequestTypeError(
            f"{name} must be a sequence of {what}, got one {_kind(value)}; put it into a list: {name}=[...]"
        )
    return tuple(value)


def _body(index: int, block: object, config: EngineConfig) -> str:
    if isinstance(block, str):
        if config.renderer is None:
            return block
        block = ContextBlock(text=block)
    if not isinstance(block, ContextBlock):
        raise RequestTypeError(f"blocks[{index}] must be a str or a ContextBlock, got {_kind(block)}; convert it")
    if block.title is not None and not isinstance(block.title, str):
        raise RequestTypeError(f"blocks[{index}].title must be a str or None, got {_kind(block.title)}; convert it")
    body = block.text if config.renderer is None else config.renderer(block)
    if not isinstance(body, str):
        where = "its text" if config.renderer is None else "what the renderer returned"
        raise RequestTypeError(f"blocks[{index}]: {where} must be a str, got {_kind(body)}; convert it")
    return body


def _digests(bodies: Sequence[str], memo: dict[str, bytes] | None, seal: Seal) -> tuple[bytes, ...]:
    if memo is None:
        return tuple([seal(body_digest(body)) for body in bodies])
    keys = []
    for body in bodies:
        key = memo.get(body)
        if key is None:
            key = memo[body] = seal(body_digest(body))
        keys.append(key)
    return tuple(keys)


def _history(messages: tuple[Message, ...], instructions: str, seal: Seal) -> tuple[HistoryMessage, ...]:
    system: Message | None = None
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestTypeError(
                f"messages[{index}] must be a mapping with a 'role' (a str) and a 'content', got a {_kind(message)} "
                "without; give the history in OpenAI form"
            )
        if system is None and message["role"] in SYSTEM_ROLES:
            system = message
    if instructions and system is not None and message_text(system) != instructions:
        raise RequestError(
            f"instructions ({len(instructions)} characters) differ from the system message that messages already "
            "hold; a prompt has one: leave instructions empty, or give the same text"
        )
    if instructions and system is None:
        messages = ({"role": "system", "content": instructions}, *messages)
    return tuple([_history_message(message, seal) for message in messages])


def _text(name: str, value: object, fix: str) -> None:
    if not isinstance(value, str):
        raise RequestTypeError(f"{name} must be a str, got {_kind(value)}; {fix}")


def _identifier(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise RequestTypeError(f"{name} must be a str or None, got {_kind(value)}; convert it with str()")
    if not value:
        raise RequestError(f"{name}='' is empty; give a name, or None for none")
    _unicode(name, value)


def _unicode(name: str, value: str) -> None:
    """Raise `RequestError` unless a name can be written in UTF-8: other processes and servers get to see it."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{name}={value!r} holds half a character (a lone surrogate); leave it out") from None


def _kind(value: Any) -> str:
    return type(value).__name__
