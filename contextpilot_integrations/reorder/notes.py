"""The note for prompts in which documents stand without labels, and for which of them it holds."""

from collections.abc import Sequence

from contextpilot_core.checks import whole_number
from contextpilot_core.prompt import COMPACT_LABELS, body_digest
from contextpilot_core.types import OnePerProcess
from contextpilot_integrations.recent import Recent


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th ..."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else endings.get(number % 10, 'th')}"


def ordinal_note(ranks: Sequence[int]) -> str:
    """Return the note for documents of these relevance ranks, in the order of the prompt; with its blank line.

    It names the places of the best five. Nothing is said about an order by relevance.
    """
    best_first = sorted(range(len(ranks)), key=ranks.__getitem__)
    if best_first == list(range(len(ranks))):
        return ""
    return "\n\nDocuments above by relevance: " + ", ".join(
        [ordinal(place + 1) for place in best_first[:COMPACT_LABELS]]
    )


class OrderNotes(OnePerProcess):
    """The notes of the latest calls of a hook, found again by the whole context of a prompt; thread-safe.

    A context that holds one document more or less, or a part of one, has no note: so none can say what is not there.
    """

    def __init__(self, max_notes: int = 1_000) -> None:
        """Keep ``max_notes``, the least recently made forgotten first. No text is kept. Raises `ConfigError`."""
        whole_number("max_notes", max_notes, "1_000 is usual")
        self._notes: Recent[tuple[bytes, bytes], str] = Recent(max_notes)

    def keep(self, query: str, texts: Sequence[str], ranks: Sequence[int]) -> None:
        """Remember in which order the documents of a question were given, and their ranks."""
        note = ordinal_note(ranks)
        if note:
            self._notes.put(_key(query, texts), note)

    def note(self, query: str, context: str) -> str:
        """Return the note for a context that shows all documents of a call for this question, else ""."""
        return self._notes.peek(_key(query, [context])) or ""


def _key(query: str, texts: Sequence[str]) -> tuple[bytes, bytes]:
    """Frameworks put their own spaces and lines between documents, and around them."""
    return body_digest(query), body_digest(" ".join(" ".join(texts).split()))
