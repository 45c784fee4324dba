"""What a prompt says, and what its messages show already."""

from contextpilot_core.prompt.boundaries import is_structured
from contextpilot_core.prompt.citations import (
    Citations,
    Shown,
    citations,
    read_documents,
    shown_documents,
    sources_of,
)
from contextpilot_core.prompt.layout import RenderedContext, context_message_text
from contextpilot_core.prompt.memory import Conversations, KnownRecord, SharedRecords
from contextpilot_core.prompt.messages import (
    HistoryDigest,
    HistoryMessage,
    Seal,
    body_digest,
    body_digests,
    distinct,
    history_of,
    message_text,
    plain,
    sendable,
)
from contextpilot_core.prompt.note import COMPACT_LABELS, order_note
from contextpilot_core.prompt.section import Section, Sections, render_bodies, render_in_place
from contextpilot_core.prompt.visible import (
    ForeignRecord,
    Given,
    MessageRecord,
    Visible,
    foreign_record,
    label_lines,
)

__all__ = [
    "COMPACT_LABELS",
    "Citations",
    "Conversations",
    "ForeignRecord",
    "Given",
    "HistoryDigest",
    "HistoryMessage",
    "KnownRecord",
    "MessageRecord",
    "RenderedContext",
    "Seal",
    "Section",
    "Sections",
    "SharedRecords",
    "Shown",
    "Visible",
    "body_digest",
    "body_digests",
    "citations",
    "context_message_text",
    "distinct",
    "foreign_record",
    "history_of",
    "is_structured",
    "label_lines",
    "message_text",
    "order_note",
    "plain",
    "read_documents",
    "render_bodies",
    "render_in_place",
    "sendable",
    "shown_documents",
    "sources_of",
]
