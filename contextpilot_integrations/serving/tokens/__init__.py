"""The exact tokens of prompts: who tells them, and where the blocks lie in them."""

from contextpilot_integrations.serving.tokens.locate import PromptTokenizer
from contextpilot_integrations.serving.tokens.sources import (
    HuggingFaceTokens,
    ServerTokens,
    TokenSource,
    check_source,
    read_token_ids,
)

__all__ = ["HuggingFaceTokens", "PromptTokenizer", "ServerTokens", "TokenSource", "check_source", "read_token_ids"]
