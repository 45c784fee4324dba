"""What all swap-in hooks share: the order of their documents, the note on the last one, the memory of a session."""

from contextpilot_integrations.reorder.arrange import Arrangement, arrange, arrange_in_turn
from contextpilot_integrations.reorder.notes import RANK, SOURCES, relevance_order, strip_note
from contextpilot_integrations.reorder.orders import OrderMemory

__all__ = [
    "Arrangement",
    "OrderMemory",
    "RANK",
    "SOURCES",
    "arrange",
    "arrange_in_turn",
    "relevance_order",
    "strip_note",
]
