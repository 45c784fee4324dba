"""What a prompt says, and what its messages show already."""

from contextpilot_core.prompt.layout import COMPACT_LABELS, context_message_text, order_note
from contextpilot_core.prompt.memory import KnownRecord
from contextpilot_core.prompt.messages import HistoryDigest, body_digest, distinct, message_text
from contextpilot_core.prompt.section import render_bodies
from contextpilot_core.prompt.visible import ForeignRecord, MessageRecord, Visible, foreign_record

__all__ = [
    "COMPACT_LABELS",
    "ForeignRecord",
    "HistoryDigest",
    "KnownRecord",
    "MessageRecord",
    "Visible",
    "body_digest",
    "context_message_text",
    "distinct",
    "foreign_record",
    "message_text",
    "order_note",
    "render_bodies",
]
