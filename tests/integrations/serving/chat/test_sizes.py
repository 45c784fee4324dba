"""Estimated tokens of messages: their texts, whatever form they have, and four for each message."""

import pytest

from contextpilot_integrations.serving.chat.sizes import message_tokens

TEXT = {"type": "text", "text": "two words"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA BBBB"}}


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("two words", 6),
        ("", 4),
        (None, 4),
        ([], 4),
        ([TEXT, TEXT], 8),
        ((TEXT,), 6),
        (["two words", TEXT], 8),  # LangChain's parts may be texts
        ([IMAGE, TEXT], 6),
        ([{"type": "text", "text": None}, {"type": "text"}, 5, None], 4),
        (5, 4),
    ],
)
def test_a_message_counts_its_texts(content, tokens):
    assert message_tokens({"role": "user", "content": content}, lambda text: len(text.split())) == tokens


def test_a_message_without_content_counts_what_a_template_puts_around_it():
    assert message_tokens({"role": "assistant", "tool_calls": []}, len) == 4
