"""Two prompts cut into lines and sentences, and what they share behind the place where they first differ."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contextpilot_core.diagnose.records import TOOLS, Part, Unit, units_of
from contextpilot_core.types import cached_property


@dataclass(frozen=True)
class Side:
    """One prompt of a pair.

    rest: units behind the common prefix. shared: the long ones that the other prompt holds too, there. elsewhere: the
    texts of the other prompt's ``rest``.
    """

    parts: tuple[Part, ...]
    units: tuple[Unit, ...]
    rest: tuple[Unit, ...]
    shared: tuple[Unit, ...]
    elsewhere: frozenset[str]

    @cached_property
    def own(self) -> tuple[Unit, ...]:
        """The units of ``rest`` that the other prompt lacks."""
        shared = set(self.shared)
        return tuple(unit for unit in self.rest if unit not in shared)

    @cached_property
    def fresh(self) -> tuple[Unit, ...]:
        """The units of ``own`` whose text stands nowhere in the other prompt's ``rest`` (labels do)."""
        return tuple(unit for unit in self.own if unit.text not in self.elsewhere)

    def role(self, unit: Unit) -> str:
        """Return the role of the part that holds ``unit``."""
        return self.parts[unit.part].role


@dataclass(frozen=True)
class Pair:
    """An earlier prompt, a later one, and where they first differ (index of the part, character offset)."""

    a: Side
    b: Side
    at: tuple[int, int]


Span = tuple[int, int, int]
"""(part, start, end) of a text in a prompt."""


def document_spans(parts: Sequence[Part], documents: Iterable[str]) -> list[Span]:
    """Return where known documents first stand in a prompt; those that it does not hold are left out."""
    spans = []
    for text in dict.fromkeys(document.strip() for document in documents):
        for number, part in enumerate(parts):
            start = part.text.find(text) if text and part.role != TOOLS else -1
            if start >= 0:
                spans.append((number, start, start + len(text)))
                break
    return spans


def cut_pair(a: tuple[Part, ...], b: tuple[Part, ...], at: tuple[int, int], documents: Sequence[str]) -> Pair:
    """Cut two prompts into units and pair off the equal long ones behind the common prefix.

    Where documents are known, what the template says behind the last of them is not paired off: it has to stand there.
    """
    units_a, units_b = units_of(a), units_of(b)
    rest_a, rest_b = (tuple(u for u in units if (u.part, u.end) > at) for units in (units_a, units_b))
    both = Counter(u.text for u in rest_a if u.long) & Counter(u.text for u in rest_b if u.long)
    if documents:
        for text in _tail(a, rest_a, documents) & _tail(b, rest_b, documents):
            del both[text]
    texts_a, texts_b = (frozenset(u.text for u in rest) for rest in (rest_a, rest_b))
    return Pair(
        Side(a, units_a, rest_a, _first(rest_a, both), texts_b),
        Side(b, units_b, rest_b, _first(rest_b, both), texts_a),
        at,
    )


def _tail(parts: Sequence[Part], rest: Iterable[Unit], documents: Sequence[str]) -> set[str]:
    """Return the texts behind the last document, in its message and in the last one (not the history between)."""
    last = max(((part, end) for part, _, end in document_spans(parts, documents)), default=(len(parts), 0))
    return {u.text for u in rest if u.part in (last[0], len(parts) - 1) and (u.part, u.start) >= last}


def _first(units: Iterable[Unit], counts: Counter[str]) -> tuple[Unit, ...]:
    """Return the first ``counts[text]`` units of every text."""
    left = counts.copy()
    found: list[Unit] = []
    for unit in units:
        if left[unit.text] > 0:
            left[unit.text] -= 1
            found.append(unit)
    return tuple(found)
