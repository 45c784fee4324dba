"""Estimated tokens of messages."""

from collections.abc import Callable

from contextpilot_core import Message

TokenCount = Callable[[str], int]


def message_tokens(message: Message, count: TokenCount) -> int:
    """Estimate the tokens of one message: its texts, and 4 for what a chat template puts around it."""
    content = message.get("content")
    parts = content if isinstance(content, (list, tuple)) else [{"text": content}]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return 4 + sum(count(text) for text in texts if isinstance(text, str))
