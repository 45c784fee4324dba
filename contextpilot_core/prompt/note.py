"""The note that tells the model the original order of relevance (docs: "The note")."""

from collections.abc import Sequence

from contextpilot_core.config import NoteStyle
from contextpilot_core.tokens import TokenCounter

COMPACT_LABELS = 5
COMPACT_TOKENS = 16


def order_note(style: NoteStyle, labels_by_rank: Sequence[int], count: TokenCounter) -> str:
    """Name the original relevance order by labels (docs: The note).

    Args:
        style: "compact" (the best `COMPACT_LABELS`, at most `COMPACT_TOKENS` tokens by ``count``), "full" (the
            paper's sentence over all labels) or "none".
        labels_by_rank: labels of the blocks that stand in the prompt, best first.
        count: the engine's token counter.

    Returns:
        The note, made of words and numbers alone. Empty for "none", for fewer than two labels (there is no order
        to tell), and where even one label is over the limit: then the caller must keep the retrieval order.
    """
    if style == "none" or len(labels_by_rank) < 2:
        return ""
    if style == "full":
        order = " > ".join([f"[Doc {label}]" for label in labels_by_rank])
        return f"Read the documents in this order of relevance: {order}"
    for kept in range(min(COMPACT_LABELS, len(labels_by_rank)), 0, -1):
        note = "Relevance: " + " ".join(map(str, labels_by_rank[:kept]))
        if count(note) <= COMPACT_TOKENS:
            return note
    return ""
