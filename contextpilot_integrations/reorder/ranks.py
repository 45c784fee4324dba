"""What a hook notes in the metadata of what it gives back, so that the order of relevance is never lost."""

from collections.abc import Mapping, Sequence
from typing import Any

RANK = "contextpilot_rank"
"""Metadata key of a document's place in the order of relevance; 0 is the best."""
PLACE = "contextpilot_place"
"""Metadata key of a document's place among those that a hook gave back; 0 is the first."""
SOURCES = "contextpilot_sources"
"""Metadata key of all documents that had this text (``id`` and ``metadata`` of each), where there are several."""
OWN_KEYS = frozenset({RANK, PLACE, SOURCES})


def relevance_order(metadata: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the positions best first: as given, or by rank when the documents come straight from one of our hooks.

    They do when each has a rank of its own and they stand in the order of their places, whoever left some of them
    out. Where somebody has moved them since, or mixed in others, their new order is the one that counts.
    """
    ranks: list[Any] = [each.get(RANK) for each in metadata]
    places: list[Any] = [each.get(PLACE) for each in metadata]
    positions = tuple(range(len(metadata)))
    if not all(isinstance(each, int) for each in (*ranks, *places)) or len(set(ranks)) < len(ranks):
        return positions
    straight = all(before < after for before, after in zip(places, places[1:], strict=False))
    return tuple(sorted(positions, key=ranks.__getitem__)) if straight else positions


def without_own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata as it was before any hook of ours."""
    return {key: value for key, value in metadata.items() if key not in OWN_KEYS}
