"""Tool results that are lists of documents, rendered anew: labelled, each text once. A function of the messages alone.

What a result becomes depends on the messages before it and on nothing else. So a conversation that only grows keeps
its bytes, and one that was cut or summarised gets every text again that it no longer shows.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from contextpilot_core import EngineConfig, TokenCounter
from contextpilot_core.prompt import (
    ForeignRecord,
    MessageRecord,
    Visible,
    body_digest,
    foreign_record,
    message_text,
    render_bodies,
)
from contextpilot_integrations.langchain.documents import as_block, by_relevance
from contextpilot_integrations.recent import Recent
from contextpilot_integrations.reorder import strip_note


def documents_of(message: BaseMessage) -> list[Document]:
    """Return the documents of a retrieved tool result, best first; none for any other message.

    A result counts when its artifact is a list of documents, or of the plain dicts that a checkpoint makes of them,
    and when its content shows each text literally. Otherwise the application shows the model something else on
    purpose (a summary, cleared or redacted text), and that has to stay.
    """
    if not isinstance(message, ToolMessage) or not isinstance(message.artifact, (list, tuple)):
        return []
    documents = [document for entry in message.artifact if (document := _document(entry)) is not None]
    content = message_text({"content": message.content})
    if content is None or len(documents) < len(message.artifact):
        return []
    if not all(strip_note(document.page_content) in content for document in documents):
        return []
    return by_relevance(documents)


def _document(entry: object) -> Document | None:
    if isinstance(entry, Document):
        return entry
    if not isinstance(entry, Mapping) or not {"page_content", "metadata"} <= entry.keys():
        return None
    text, metadata = entry["page_content"], entry["metadata"]
    if not isinstance(text, str) or not isinstance(metadata, Mapping):
        return None
    return Document(id=entry.get("id"), page_content=text, metadata=dict(metadata))


class ResultRenderer:
    """Renders all retrieved tool results of a message list; thread-safe.

    It remembers what it worked out, so that a long conversation costs its new messages; that changes no byte.
    """

    def __init__(self, config: EngineConfig, count: TokenCounter, max_results: int = 1_024) -> None:
        """Remember at most ``max_results`` messages, the least recently used forgotten first."""
        self._config, self._count = config, count
        self._known: Recent[bytes, Any] = Recent(max_results)

    def __call__(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages with their retrieved results rendered; every other message is the same object."""
        shown: list[tuple[MessageRecord, str]] = []
        foreign: list[tuple[ForeignRecord, str | None]] = []
        chain = b""
        result: list[BaseMessage] = []
        for message in messages:
            documents = documents_of(message)
            if documents:
                bodies = [self._body(document) for document in documents]
                chain = _extended(chain, b"documents", bodies)
                text, record = self._known.get(chain, partial(self._render, bodies, shown, foreign))
                shown.append((record, text))
                message = message.model_copy(update={"content": text})
            else:
                words = message_text({"content": message.content})
                readable = bool(words) and isinstance(message, (HumanMessage, ToolMessage))
                answer = isinstance(message, AIMessage)
                kind = b"text" if readable else b"answer" if answer else b"other"
                chain = _extended(chain, kind, [words or repr(message.content)])
                content = words or message.content
                read = self._known.get(chain, partial(foreign_record, content, readable=readable, answer=answer))
                foreign.append((read, words if readable else None))
            result.append(message)
        return result

    def _body(self, document: Document) -> str:
        renderer = self._config.renderer
        block = as_block(document)
        return block.text if renderer is None else renderer(block)

    def _render(
        self,
        bodies: Sequence[str],
        shown: Sequence[tuple[MessageRecord, str]],
        foreign: Sequence[tuple[ForeignRecord, str | None]],
    ) -> tuple[str, MessageRecord]:
        text, record = render_bodies(bodies, self._config, self._count, Visible(tuple(shown), tuple(foreign)))
        record.sources(text)  # worked out before another thread can see the record
        return text, record


def _extended(chain: bytes, kind: bytes, texts: Sequence[str]) -> bytes:
    """Return the digest of a message list that continues ``chain`` with these texts."""
    return hashlib.sha256(b"".join([chain, kind, *map(body_digest, texts)])).digest()
