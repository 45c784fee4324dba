"""What kind of thing differs between two prompts, judged on the units that they do and do not share."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal

from contextpilot_core.diagnose.masks import MaskKind, mappings
from contextpilot_core.diagnose.pairs import Pair, Side
from contextpilot_core.diagnose.records import SYSTEM, TOOLS, Part, Unit, common_length
from contextpilot_core.diagnose.varied import Varied

Kind = Literal[
    "appended",
    "tail",
    "tool_order",
    "tool_keys",
    "tool_set",
    "clock",
    "score",
    "id",
    "path",
    "rank_label",
    "user",
    "email",
    "tenant",
    "turn",
    "language",
    "metadata_order",
    "question_before_context",
    "memory_in_system",
    "history_cut",
    "document_order",
    "document_set",
    "other",
]

_ASKS = re.compile(
    r"\b(?:question|query|user(?: question| input)?|human|input|asks?)\b[\"'*]{0,3}\s*[:=]", re.IGNORECASE
)
_TOOL = re.compile(r'\{"(?:type": ?"function"|function":|name":)')
_MEMORY = re.compile(r"\b(?:memor(?:y|ies)|remember(?:ed|s)?|preferences?|user profile|known facts)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: at ``offset`` of part ``part`` of the later prompt; lengths of the texts that differ."""

    kind: Kind
    part: int
    offset: int
    before: int
    after: int


def varied_changes(varied: Sequence[Varied]) -> Iterator[Change]:
    """Yield the first place of every kind among text that is the same but for a detail."""
    seen: set[MaskKind] = set()
    for pair in varied:
        same = common_length(pair.a.text, pair.b.text)
        for kind in pair.kinds:
            if kind not in seen:
                seen.add(kind)
                yield Change(kind, pair.b.part, pair.b.start + same, len(pair.a.text) - same, len(pair.b.text) - same)


Place = tuple[int, int, int]
"""(part, offset, length)."""


def metadata_places(pair: Pair) -> list[tuple[Place, Place]]:
    """Return the mappings that both prompts print with their keys in another order, where each has them."""
    places_a, places_b = _mappings(pair.a, pair.at[0]), _mappings(pair.b, pair.at[0])
    return [
        (places_a[key][0], place)
        for key, (place, text) in places_b.items()
        if key in places_a and places_a[key][1] != text and (place[0], place[1] + place[2]) > pair.at
    ]


def _mappings(side: Side, first: int) -> dict[tuple[str, ...], tuple[Place, str]]:
    found: dict[tuple[str, ...], tuple[Place, str]] = {}
    for number, part in enumerate(side.parts[first:], first):
        for key, (offset, text) in mappings(part.text).items() if part.role != TOOLS else ():
            found.setdefault(key, ((number, offset, len(text)), text))
    return found


def question_place(
    side: Side, question: str, at: tuple[int, int], known: Collection[Unit] = frozenset()
) -> Place | None:
    """Return where a prompt's question stands: the known one, else the first text behind ``at`` that looks like one.

    ``known``: units that are no question.
    """
    question = question.strip()
    if question:
        for number, part in enumerate(side.parts[at[0] :], at[0]):
            start = part.text.find(question)
            if start >= 0 and part.role != TOOLS and (number, start + len(question)) > at:
                return number, start, len(question)
        return None
    for unit in [unit for unit in side.fresh if unit not in known][:3]:
        alone = side.role(unit) == "user" and side.parts[unit.part].text.strip() == unit.text
        if alone or _ASKS.search(unit.text) or _ASKS.search(_line_before(side, unit)):
            return unit.part, unit.start, len(unit.text)
    return None


def question_change(pair: Pair, places: tuple[Place | None, Place | None]) -> Iterator[Change]:
    """Yield the question when text that both prompts hold stands behind it in both."""
    a, b = places
    if a and b and _behind(pair.a, a[:2]) and _behind(pair.b, b[:2]):
        yield Change("question_before_context", b[0], b[1], a[2], b[2])


def covered(side: Side, place: Place | None) -> list[Unit]:
    """Return the own units that overlap a place."""
    if place is None:
        return []
    part, start, length = place
    first = bisect_right(side.own, (part, start), key=lambda unit: (unit.part, unit.end))
    return list(takewhile(lambda unit: (unit.part, unit.start) < (part, start + length), islice(side.own, first, None)))


def _line_before(side: Side, unit: Unit) -> str:
    """Return a heading right before ``unit``, or nothing."""
    text = side.parts[unit.part].text[: unit.start].rstrip()
    line = text[text.rfind("\n") + 1 :]
    return line if line.endswith((":", "#", "*", "=")) else ""


def memory_change(pair: Pair, known: Collection[Unit]) -> Iterator[Change]:
    """Yield text of the system message that changes while shared text stands behind it: memories, a profile.

    Told from documents by a word like "memories" in it or in its heading, or by more shared text in later messages
    than there is changed text in this one. ``known``: units that have been explained otherwise.
    """
    fresh = [unit for unit in pair.b.fresh if pair.b.role(unit) in SYSTEM and unit not in known]
    if not fresh or not _behind(pair.b, (fresh[0].part, fresh[0].start)):
        return
    first = fresh[0]
    before, after = (sum(len(u.text) for u in side.fresh if u.part == first.part) for side in (pair.a, pair.b))
    later = sum(len(unit.text) for unit in pair.b.shared if unit.part > first.part)
    if _MEMORY.search(first.text) or _MEMORY.search(_heading(pair.b.parts[first.part], first)) or later > after:
        yield Change("memory_in_system", first.part, first.start, before, after)


def _heading(part: Part, unit: Unit) -> str:
    """Return the nearest line before ``unit`` that is no list entry."""
    lines = part.text[: unit.start].splitlines()
    return next((line for line in reversed(lines) if line.strip() and not line.lstrip().startswith(("-", "*"))), "")


def history_change(pair: Pair) -> Iterator[Change]:
    """Yield the place from which earlier messages are gone: a message of the later prompt stood further back."""
    at = pair.at[0]
    places: dict[tuple[str, str], int] = {}
    for number, part in enumerate(pair.a.parts[at:], at):
        places.setdefault((part.role, part.text), number)
    for number, part in enumerate(pair.b.parts[at : at + 2], at):
        moved = places.get((part.role, part.text), -1)
        if moved > number and part.text:
            removed = sum(len(other.text) for other in pair.a.parts[at:moved])
            yield Change("history_cut", at, 0, removed, sum(len(other.text) for other in pair.b.parts[at:number]))
            return


def document_changes(pair: Pair, varied: Sequence[Varied], known: Collection[Unit]) -> Iterator[Change]:
    """Yield whether shared text stands in another order, and whether other long text stands beside it.

    Units that differ in a detail only count as shared here. ``known``: units that have been explained otherwise.
    """
    twins = {pair.b: pair.a.text for pair in varied}
    order_a = _ordered([*pair.a.shared, *(unit.a for unit in varied)])
    order_b = _ordered([*pair.b.shared, *twins])
    texts_a, texts_b = [unit.text for unit in order_a], [twins.get(unit, unit.text) for unit in order_b]
    first = common_count(texts_a, texts_b)
    if first < min(len(texts_a), len(texts_b)):
        unit_a, unit_b = order_a[first], order_b[first]
        kind_of_order: Kind = "tool_order" if _TOOL.match(unit_b.text) else "document_order"
        yield Change(kind_of_order, unit_b.part, unit_b.start, len(unit_a.text), len(unit_b.text))
    fresh_a, fresh_b = ([unit for unit in side.fresh if unit not in known] for side in (pair.a, pair.b))
    if _before(fresh_a, order_a) or _before(fresh_b, order_b):
        kind: Kind = "document_set" if any(unit.long for unit in (*fresh_a, *fresh_b)) else "other"
        place = fresh_b[0] if _before(fresh_b, order_b) else order_b[0]
        lengths = (sum(len(unit.text) for unit in fresh) for fresh in (fresh_a, fresh_b))
        yield Change(kind, place.part, place.start, *lengths)


def _before(fresh: Sequence[Unit], order: Sequence[Unit]) -> bool:
    """Tell whether some of ``fresh`` stands before some of ``order``."""
    return bool(fresh and order) and (order[-1].part, order[-1].start) > (fresh[0].part, fresh[0].start)


def _ordered(units: Iterable[Unit]) -> list[Unit]:
    return sorted(set(units), key=lambda unit: (unit.part, unit.start))


def common_count(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many entries two sequences share at their heads."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _behind(side: Side, at: tuple[int, int]) -> bool:
    """Tell whether shared text stands behind a place."""
    return any((unit.part, unit.start) > at for unit in side.shared)
