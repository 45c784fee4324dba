"""The note on the last document."""

import re
from collections.abc import Sequence
from typing import Any

from contextpilot_core.config import NoteStyle
from contextpilot_core.prompt import COMPACT_LABELS

RANK = "contextpilot_rank"
"""Metadata key of a document's place in the order of relevance; 0 is the best."""
SOURCES = "contextpilot_sources"
"""Metadata key of all documents that had this text (``id`` and ``metadata`` of each), where there are several."""

_NOTE_HEAD = "\n\nDocuments above by relevance: "
_ORDINAL = r"[0-9]+(?:st|nd|rd|th)"
_NOTE = re.compile(rf"{re.escape(_NOTE_HEAD)}{_ORDINAL}(?:, {_ORDINAL})*\Z")


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th ..."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else endings.get(number % 10, 'th')}"


def ordinal_note(style: NoteStyle, ranks: Sequence[int]) -> str:
    """Return the note for documents of these relevance ranks, in the order of the prompt; with its blank line.

    "compact" names the places of the best five, "full" of all; nothing is said about an order by relevance.
    """
    best_first = sorted(range(len(ranks)), key=ranks.__getitem__)
    if style == "none" or best_first == list(range(len(ranks))):
        return ""
    named = best_first if style == "full" else best_first[:COMPACT_LABELS]
    return _NOTE_HEAD + ", ".join(ordinal(place + 1) for place in named)


def strip_note(text: str) -> str:
    """Return the text without notes of ours at its end."""
    while True:
        at = text.rfind(_NOTE_HEAD)
        if at < 0 or not _NOTE.match(text, at):
            return text
        text = text[:at]


def relevance_order(texts: Sequence[str], ranks: Sequence[Any]) -> tuple[int, ...]:
    """Return the positions best first: as given, or by rank when the documents come straight from one of our hooks.

    They do when the last text ends in our note and each has a rank of its own (``metadata[RANK]``): then the order
    is no longer that of relevance, and only the ranks still know it. The note alone, which any text may imitate,
    changes nothing.
    """
    positions = tuple(range(len(texts)))
    own = {rank for rank in ranks if isinstance(rank, int)}
    if not texts or strip_note(texts[-1]) == texts[-1] or len(own) < len(texts) or len(ranks) != len(texts):
        return positions
    return tuple(sorted(positions, key=ranks.__getitem__))
