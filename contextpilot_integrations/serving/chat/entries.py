"""The messages of a conversation, whatever keeps them, and what the questions among them were planned from."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contextpilot_core import ContextBlock, EngineConfig, Message, Source, TokenCounter
from contextpilot_core.prompt import Shown, body_digest, sources_of
from contextpilot_core.tokens import MOST_TOKENS
from contextpilot_integrations.serving.chat.texts import whole


@dataclass(frozen=True)
class Asked:
    """What a user message of ours was planned from, so that it can be planned again.

    ``parts``: what the question had besides text (images ...). ``order``: that of its plan, None before it was planned.
    ``base``: digest of the history that its hints name or its labels go on from, "" for neither. ``tokens``: what our
    counter said of the whole prompt, to be compared with what the server says. ``frame``: what a template put before
    the context, and what behind it, the question included; None for no template. ``labels``: those of its plan.

    All texts are made whole (`whole`), as they are to be sent. What has another type the engine refuses.
    """

    query: str
    blocks: tuple[str | ContextBlock, ...]
    parts: tuple[Message, ...] = ()
    order: tuple[int, ...] | None = None
    base: str = ""
    tokens: int = 0
    frame: tuple[str, str] | None = None
    labels: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        """Make the texts whole. Raises `RequestError`: the parts contain themselves."""
        for name in ("query", "parts", "frame"):
            object.__setattr__(self, name, whole(getattr(self, name)))
        if isinstance(self.blocks, tuple):
            object.__setattr__(self, "blocks", tuple([_whole_block(block) for block in self.blocks]))

    @property
    def head(self) -> str:
        """What stands in the message before the context."""
        return "" if self.frame is None else self.frame[0]

    @property
    def words(self) -> str:
        """What stands in the message behind the context, in place of the question."""
        return self.query if self.frame is None else self.frame[1]


@dataclass(frozen=True)
class Entry:
    """One message of a conversation. ``asked``: for user messages of ours; ``origin``: the framework's own message.

    The content of a message of ours is context, note and question, so that the engine recognises it. It is not shown
    the head of a template, and other parts as a message of their own.
    """

    message: Message | None
    asked: Asked | None = None
    origin: Any = None

    @property
    def is_question(self) -> bool:
        """Whether a turn begins here."""
        return self.message is None or self.message["role"] == "user"

    @property
    def is_system(self) -> bool:
        """Whether it tells the model how to behave."""
        return self.message is not None and self.message["role"] in ("system", "developer")

    @property
    def read(self) -> tuple[Message, ...]:
        """What the engine is shown."""
        parts = self.asked.parts if self.asked is not None else ()
        alone: tuple[Message, ...] = ({"role": "user", "content": list(parts)},) if parts else ()
        return alone if self.message is None else (self.message, *alone)

    @property
    def sent(self) -> tuple[Message, ...]:
        """What the server gets: one message with text and other parts."""
        asked = self.asked
        if self.message is None or asked is None or not (asked.parts or asked.head):
            return self.read
        text = f"{asked.head}{self.message['content']}"
        return ({**self.message, "content": [{"type": "text", "text": text}, *asked.parts] if asked.parts else text},)


def record_of(asked: Asked, text: str) -> dict[str, Any]:
    """Return what it takes to plan a question again, in JSON values, for whoever keeps its message, which is ``text``.

    Of the metadata only what JSON can hold: that is for citing, and for a renderer.
    """
    record = {
        "query": asked.query,
        "blocks": [_kept(block) for block in map(_block, asked.blocks)],
        "order": list(asked.order or ()),
        "labels": list(asked.labels),
        "tokens": asked.tokens,
        "base": asked.base,
        "shown": _words(text),
        **({} if asked.frame is None else {"frame": list(asked.frame)}),
    }
    return whole(record)


def asked_of(record: Any, text: str | None) -> Asked | None:
    """Read what `record_of` wrote; None for what it did not write, and where ``text`` is no longer what it was.

    A message that somebody cut, redacted or summarised is theirs: what it no longer shows does not come back.
    """
    shown = record.get("shown") if isinstance(record, Mapping) else None
    if not isinstance(record, Mapping) or text is None or (shown is not None and shown != _words(text)):
        return None
    try:
        asked = Asked(
            query=_typed(record["query"], str),
            blocks=tuple([_stored_block(block) for block in _typed(record["blocks"], list, tuple)]),
            order=tuple(map(int, _typed(record.get("order", ()), list, tuple))) or None,
            base=_typed(record.get("base", ""), str),
            tokens=int(record["tokens"]),
            frame=_frame(record["frame"]) if "frame" in record else None,
            labels=tuple([_label(label) for label in _typed(record.get("labels", ()), list, tuple)]),
        )
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    return asked if 0 <= asked.tokens <= MOST_TOKENS else None


def _typed(value: Any, *kinds: type) -> Any:
    """Return a value. Raises `TypeError`: it is of another type."""
    if not isinstance(value, kinds):
        raise TypeError(type(value).__name__)
    return value


def _stored_block(stored: Any) -> ContextBlock:
    block = ContextBlock(**_typed(stored, Mapping))
    _typed(block.text, str), _typed(block.title, str, type(None))
    for name in _typed(block.metadata, dict, type(None)) or ():
        _typed(name, str)
    return block


def _frame(stored: Any) -> tuple[str, str]:
    head, words = _typed(stored, list, tuple)
    return _typed(head, str), _typed(words, str)


def _label(stored: Any) -> int | None:
    if stored is not None and (isinstance(stored, bool) or _typed(stored, int) < 1):
        raise ValueError(stored)
    return stored


def _kept(block: ContextBlock) -> dict[str, Any]:
    """Return a block in JSON values, without what it has not."""
    given = (block.metadata or {}).items()
    metadata = {str(key): kept for key, value in given if (kept := _in_json(value)) is not None or value is None}
    named = {"text": block.text, "id": _in_json(block.id), "title": block.title, "metadata": metadata}
    return {name: value for name, value in named.items() if value not in (None, {})}


def _in_json(value: Any) -> Any:
    """Return a value as JSON gives it back, None for what it cannot hold."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (RecursionError, TypeError, ValueError):
        return None


def as_rendered(message: Message, asked: Asked | None) -> Message:
    """Return a message that was sent as the engine rendered it: without the head of a template."""
    head, content = "" if asked is None else asked.head, message["content"]
    return {**message, "content": content[len(head) :]} if head and content.startswith(head) else message


def known_sources(sources: Mapping[int, Source], asked: Iterable[Asked], config: EngineConfig) -> Mapping[int, Source]:
    """Return ``sources`` with the blocks that were ``asked`` about, where an engine knew no more than their text."""
    bare = {source.block.text for source in sources.values() if source.block == ContextBlock(text=source.block.text)}
    found: dict[str, list[ContextBlock]] = {}
    for block in [_block(each) for question in asked for each in question.blocks] if bare else ():
        text = block.text if config.renderer is None else config.renderer(block)
        if text in bare:
            found.setdefault(text, []).append(block)
    named = [Shown(label, b"", tuple(found.get(each.block.text, each.blocks))) for label, each in sources.items()]
    return sources_of([named])


def stored_sources(asked: Iterable[Asked]) -> Mapping[int, Source]:
    """Return what the labels of questions stand for that somebody has kept, without the engine that planned them."""
    return sources_of(
        [
            [
                Shown(label, body_digest(block.text), (block,))
                for block, label in zip(map(_block, question.blocks), question.labels, strict=False)
                if label is not None
            ]
            for question in asked
        ]
    )


def _whole_block(block: str | ContextBlock) -> str | ContextBlock:
    if not isinstance(block, ContextBlock):
        return whole(block)
    text, title = whole(block.text), whole(block.title)
    return block if text is block.text and title is block.title else replace(block, text=text, title=title)


def _block(block: str | ContextBlock) -> ContextBlock:
    return block if isinstance(block, ContextBlock) else ContextBlock(text=block)


def _words(text: str) -> str:
    """Return the digest of a text but for its spaces and ends of lines, which stores may change."""
    return body_digest(" ".join(text.split())).hex()


def read(entries: Iterable[Entry]) -> list[Message]:
    """Return all messages as the engine is shown them."""
    return [message for entry in entries for message in entry.read]


def sent(entries: Iterable[Entry]) -> list[Message]:
    """Return all messages as the server gets them."""
    return [message for entry in entries for message in entry.sent]


def split_turns(entries: Sequence[Entry]) -> tuple[list[Entry], list[list[Entry]]]:
    """Return what stands before the first question, and the turns, each from a question to the next."""
    head: list[Entry] = []
    turns: list[list[Entry]] = []
    for entry in entries:
        if entry.is_question:
            turns.append([entry])
        else:
            (turns[-1] if turns else head).append(entry)
    return head, turns


def message_tokens(message: Message, count: TokenCounter) -> int:
    """Estimate the tokens of one message: its texts, and 4 for what a chat template puts around it."""
    content = message.get("content")
    parts = content if isinstance(content, (list, tuple)) else [{"text": content}]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return 4 + sum(count(text) for text in texts if isinstance(text, str))
