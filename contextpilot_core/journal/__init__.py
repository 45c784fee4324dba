"""How several processes share one view, through a log."""

from contextpilot_core.journal.log_state import LogState, rules
from contextpilot_core.journal.operations import (
    Committed,
    Entry,
    Inserted,
    NamespaceSnapshot,
    Operation,
    Recorded,
    Released,
    Rendered,
    Reset,
    Snapshot,
)
from contextpilot_core.journal.state import Journal, SharedState

__all__ = [
    "Committed",
    "Entry",
    "Inserted",
    "Journal",
    "LogState",
    "NamespaceSnapshot",
    "Operation",
    "Recorded",
    "Released",
    "Rendered",
    "Reset",
    "SharedState",
    "Snapshot",
    "rules",
]
