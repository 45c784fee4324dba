"""What a prompt says, and what its messages show already."""

from contextpilot_core.prompt.layout import (
    COMPACT_LABELS,
    BlockItem,
    HintItem,
    build_messages,
    context_message_text,
    order_note,
    render_context,
)
from contextpilot_core.prompt.memory import KnownRecord
from contextpilot_core.prompt.messages import HistoryDigest, body_digest, distinct, message_text
from contextpilot_core.prompt.spans import split_blocks
from contextpilot_core.prompt.visible import ForeignRecord, MessageRecord, Visible, foreign_record, message_record

__all__ = [
    "COMPACT_LABELS",
    "BlockItem",
    "ForeignRecord",
    "HintItem",
    "HistoryDigest",
    "KnownRecord",
    "MessageRecord",
    "Visible",
    "body_digest",
    "build_messages",
    "context_message_text",
    "distinct",
    "foreign_record",
    "message_record",
    "message_text",
    "order_note",
    "render_context",
    "split_blocks",
]
