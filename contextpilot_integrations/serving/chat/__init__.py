"""What every chat of ours needs, whatever it talks through: one turn, planned, sent, remembered and measured."""

from contextpilot_integrations.serving.chat.answers import check_options, no_answer, room_for, says_something
from contextpilot_integrations.serving.chat.containment import contained
from contextpilot_integrations.serving.chat.entries import (
    Asked,
    Entry,
    as_rendered,
    asked_of,
    record_of,
    sent,
    stored_sources,
)
from contextpilot_integrations.serving.chat.locks import Held, TurnLocks
from contextpilot_integrations.serving.chat.parts import check_parts
from contextpilot_integrations.serving.chat.replan import Setting
from contextpilot_integrations.serving.chat.tenants import SALT, Tenants
from contextpilot_integrations.serving.chat.texts import whole
from contextpilot_integrations.serving.chat.turn import Turn
from contextpilot_integrations.serving.chat.usage import TurnFigures, Usage, read_usage, scale_of, usual_tokens

__all__ = [
    "SALT",
    "Asked",
    "Entry",
    "Held",
    "Setting",
    "Tenants",
    "Turn",
    "TurnFigures",
    "TurnLocks",
    "Usage",
    "as_rendered",
    "asked_of",
    "contained",
    "no_answer",
    "read_usage",
    "record_of",
    "check_options",
    "check_parts",
    "room_for",
    "says_something",
    "scale_of",
    "sent",
    "stored_sources",
    "usual_tokens",
    "whole",
]
