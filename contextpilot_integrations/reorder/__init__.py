"""What all swap-in hooks share: the order of their documents, what they note about it, the memory of a session."""

from contextpilot_integrations.reorder.arrange import Arrangement, arrange, arrange_in_turn
from contextpilot_integrations.reorder.notes import OrderNotes
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.reorder.ranks import PLACE, RANK, SOURCES, relevance_order, without_own

__all__ = [
    "Arrangement",
    "OrderMemory",
    "OrderNotes",
    "PLACE",
    "RANK",
    "SOURCES",
    "arrange",
    "arrange_in_turn",
    "relevance_order",
    "without_own",
]
