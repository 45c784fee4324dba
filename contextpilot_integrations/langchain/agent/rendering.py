"""Tool results that show documents, rendered anew: labelled, each text once. A function of the messages alone.

What a result becomes depends on the messages before it and on nothing else. So a conversation that only grows keeps
its bytes, and one that was cut or summarised gets every text again that it no longer shows.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from contextpilot_core import EngineConfig, TokenCounter
from contextpilot_core.prompt import (
    ForeignRecord,
    MessageRecord,
    Visible,
    body_digest,
    foreign_record,
    message_text,
    render_in_place,
)
from contextpilot_integrations.langchain.agent.results import RetrievedResult, retrieved
from contextpilot_integrations.langchain.documents import as_block
from contextpilot_integrations.recent import Recent

PLACES = "contextpilot_places"
"""Key in ``response_metadata`` of an answer: label -> the id of a message, and a position in its artifact."""


class Place(NamedTuple):
    """Where a document is: in which message, and at which position of its artifact."""

    message: int
    position: int


@dataclass(frozen=True)
class Rendering:
    """Messages as the model gets them, and, by label, the places of all documents that a label stands for."""

    messages: tuple[BaseMessage, ...]
    labelled: dict[int, list[Place]]


class _Rendered(NamedTuple):
    """One result: its text, what it shows, and the label of each of its documents."""

    text: str
    record: MessageRecord
    labels: tuple[int | None, ...]


class ResultRenderer:
    """Renders all results with documents of a message list; thread-safe.

    It remembers what it worked out, so that a long conversation costs its new messages; that changes no byte.
    """

    def __init__(self, config: EngineConfig, count: TokenCounter, max_results: int = 1_024) -> None:
        """Remember at most ``max_results`` messages, the least recently used forgotten first."""
        self._config, self._count = config, count
        self._known: Recent[bytes, Any] = Recent(max_results)

    def __call__(self, messages: Sequence[BaseMessage]) -> Rendering:
        """Return the messages with their results rendered; every other message is the same object."""
        shown: list[tuple[MessageRecord, str]] = []
        foreign: list[tuple[ForeignRecord, str | None]] = []
        chain, named = b"", 0
        sent: list[BaseMessage] = []
        labelled: dict[int, list[Place]] = {}
        for number, message in enumerate(messages):
            result = retrieved(message)
            if result is not None:
                bodies = self._bodies(result)
                chain = _extended(chain, b"documents", [*bodies, *result.around])
                made = self._known.get(chain, partial(self._render, bodies, result.around, shown, foreign, named))
                shown.append((made.record, made.text))
                for label, (_, part) in zip(made.labels, result.shown, strict=True):
                    if label is not None:
                        labelled.setdefault(label, []).append(Place(number, part.position))
                message = result.with_text(made.text)
            else:
                words = message_text({"content": message.content})
                readable = bool(words) and isinstance(message, (HumanMessage, ToolMessage))
                answer = isinstance(message, AIMessage)
                kind = b"text" if readable else b"answer" if answer else b"other"
                if isinstance(message, AIMessage) and (highest := _highest_label(message)) > named:
                    named, kind = highest, kind + b"%d" % highest  # what it cites may be cut or cleared
                chain = _extended(chain, kind, [words or repr(message.content)])
                content = words or message.content
                read = self._known.get(chain, partial(foreign_record, content, readable=readable, answer=answer))
                foreign.append((read, words if readable else None))
            sent.append(message)
        return Rendering(tuple(sent), labelled)

    def _bodies(self, result: RetrievedResult) -> list[str]:
        """Return the documents as they stand in the content, their texts as the configuration has them rendered."""
        renderer = self._config.renderer
        if renderer is None:
            return [part.whole for _, part in result.shown]
        return [part.before + renderer(as_block(document)) + part.after for document, part in result.shown]

    def _render(
        self,
        bodies: Sequence[str],
        around: Sequence[str],
        shown: Sequence[tuple[MessageRecord, str]],
        foreign: Sequence[tuple[ForeignRecord, str | None]],
        named: int,
    ) -> _Rendered:
        visible = Visible(tuple(shown), tuple(foreign), named=named)
        section, record = render_in_place(bodies, around, self._config, self._count, visible)
        text = section.context.text
        record.sources(text)  # worked out before another thread can see the record
        return _Rendered(text, record, section.labels)


def _highest_label(answer: AIMessage) -> int:
    """Return the highest label that the prompt of an answer had, 0 for none; the answer may cite it."""
    places = answer.response_metadata.get(PLACES)
    labels = [int(label) for label in places if str(label).isdecimal()] if isinstance(places, Mapping) else []
    return max(labels, default=0)


def _extended(chain: bytes, kind: bytes, texts: Sequence[str]) -> bytes:
    """Return the digest of a message list that continues ``chain`` with these texts."""
    return hashlib.sha256(b"".join([chain, kind, *map(body_digest, texts)])).digest()
