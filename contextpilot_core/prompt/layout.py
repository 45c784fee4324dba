"""Layout: blocks and hints to one context text, and what stands in the user message in which order.

A block is ``[Doc n]``, a fence, the body, the same fence, each on a line of its own. The fence is longer than any
run of ``=`` in the body, so no text can end its block, and it depends on the block alone, so equal blocks render to
equal bytes. Items are joined by one newline; the note and the question follow after blank lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core.types import Segment

_SHORTEST_FENCE = 3
_BARS = re.compile("={3,}")


@dataclass(frozen=True, slots=True)
class BlockItem:
    """A block to render under ``[Doc label]``; the texts of its segments, joined, are its original body."""

    label: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class HintItem:
    """A line in place of a block that the messages already show, in ``[Doc label]`` or (None) without a label."""

    label: int | None


@dataclass(frozen=True, slots=True)
class RenderedContext:
    """A context as text.

    ``ends``: end of every item, as a character offset in ``text``. ``pieces``: (label, start, length) of every text
    that a block shows literally, in order; offsets in ``text``.
    """

    text: str
    ends: tuple[int, ...]
    pieces: tuple[tuple[int, int, int], ...]


def fence(body: str) -> str:
    """Return the run of ``=`` around a body: one longer than its longest run, and at least three."""
    if "===" not in body:
        return "=" * _SHORTEST_FENCE
    return "=" * (1 + max(map(len, _BARS.findall(body))))


def render_context(
    items: Sequence[BlockItem | HintItem],
    *,
    hint: str,
    unlabelled_hint: str,
    span_hint: str,
    around: Sequence[str] = (),
) -> RenderedContext:
    """Render items in the order given; in ``hint`` and ``span_hint`` only ``{label}`` is replaced.

    ``around``: texts of others that stand before, between and behind the items; one newline between them without.
    """
    gaps = _gaps(items, around)
    parts: list[str] = []
    ends: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    at = 0
    for item, gap in zip(items, gaps, strict=False):
        parts.append(gap)
        at += len(gap)
        if isinstance(item, HintItem):
            label = item.label
            part = unlabelled_hint if label is None else hint.replace("{label}", str(label))
        else:
            part = _render_block(item, span_hint, at, pieces)
        parts.append(part)
        at += len(part)
        ends.append(at)
    return RenderedContext("".join([*parts, gaps[-1]]), tuple(ends), tuple(pieces))


def _gaps(items: Sequence[BlockItem | HintItem], around: Sequence[str]) -> list[str]:
    """Return what stands before, between and behind the items; a block begins and ends at a line of its own."""
    if not around:
        return ["", *["\n"] * (len(items) - 1), ""]
    gaps = []
    for place, gap in enumerate(around):
        behind_block = place > 0 and isinstance(items[place - 1], BlockItem)
        before_block = place < len(items) and isinstance(items[place], BlockItem)
        if behind_block and not gap.startswith("\n") and (gap or place < len(items)):
            gap = "\n" + gap
        if before_block and not gap.endswith("\n") and (gap or place > 0):
            gap += "\n"
        gaps.append(gap)
    return gaps


def _render_block(item: BlockItem, span_hint: str, at: int, pieces: list[tuple[int, int, int]]) -> str:
    """Return the text of a block that will stand at offset ``at``; append what it shows literally to ``pieces``."""
    label, segments = item.label, item.segments
    if len(segments) == 1 and segments[0].label is None:
        shown = segments[0].text
        bars = fence(shown)
        lengths = [len(shown)]
    else:
        texts = [s.text if s.label is None else span_hint.replace("{label}", str(s.label)) for s in segments]
        shown = "".join(texts)
        # A hint may bring or join runs of its own; for the default wording the original body decides alone.
        # (Of two runs of "=" the greater string is the longer one.)
        bars = max(fence("".join([s.text for s in segments])), fence(shown))
        lengths = list(map(len, texts))
    head = f"[Doc {label}]\n{bars}\n"
    at += len(head)
    for segment, length in zip(segments, lengths, strict=True):
        if segment.label is None and length:
            pieces.append((label, at, length))
        at += length
    return f"{head}{shown}\n{bars}"


def context_message_text(context: str, note: str, query: str) -> str:
    """Return the text of the user message: context, note, query, with blank lines between; empty parts left out."""
    return "\n\n".join([part for part in (context, note, query) if part])
