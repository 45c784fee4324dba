"""What every chat of ours needs, whatever it talks through."""

from contextpilot_integrations.serving.chat.figures import TurnFigures, observe
from contextpilot_integrations.serving.chat.locks import TurnLocks
from contextpilot_integrations.serving.chat.sizes import TokenCount, message_tokens
from contextpilot_integrations.serving.chat.tenants import SALT, Tenants
from contextpilot_integrations.serving.chat.usage import Usage, UsageSummary, read_usage, summarize

__all__ = [
    "SALT",
    "Tenants",
    "TokenCount",
    "TurnFigures",
    "TurnLocks",
    "Usage",
    "UsageSummary",
    "message_tokens",
    "observe",
    "read_usage",
    "summarize",
]
