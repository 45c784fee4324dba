"""Text that is the same in two prompts but for a clock, a score, an id, a path or a label of rank."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

from contextpilot_core.diagnose.masks import MaskKind, Skeleton, head_labels, names_now, numbers, skeleton
from contextpilot_core.diagnose.pairs import Pair, Side
from contextpilot_core.diagnose.personal import PersonalKind
from contextpilot_core.diagnose.records import SYSTEM, Unit

_PERSONAL = frozenset(get_args(PersonalKind))
_PLAIN = 24  # characters besides the blanks, from which on a unit is recognised without its neighbours


@dataclass(frozen=True, slots=True)
class Varied:
    """A unit of each prompt with equal skeletons, and the kinds of what differs (none: labels that count up)."""

    a: Unit
    b: Unit
    kinds: tuple[MaskKind, ...]


@dataclass(frozen=True, slots=True)
class _Sketch:
    """An own unit with something to blank out, and the nearest long units before and behind it.

    ``alone``: the other prompt has no such text, and what stands right behind it both hold, or it says of who asks,
    too: it begins no document.
    """

    unit: Unit
    bones: Skeleton
    previous: str
    following: str
    alone: bool

    def tells(self, kind: MaskKind) -> bool:
        """Tell whether a difference of this kind is found by what stands before it alone."""
        return kind in ("score", "rank_label") or (kind in _PERSONAL and self.alone) or names_now(self.unit.text)


def varied_units(pair: Pair) -> tuple[Varied, ...]:
    """Pair off own units that are one thing: equal text behind them, or before them, or much equal text in them.

    Equal text *before* proves little (after a constant preamble stands whatever came first), so there only what
    speaks of the present or of the one who asks, scores and labels count: ids and dates may belong to different
    documents.
    """
    sketches_a, sketches_b = list(_sketches(pair.a)), list(_sketches(pair.b))
    tests: tuple[tuple[Callable[[_Sketch], tuple[str, str]], Callable[[_Sketch, MaskKind], bool]], ...] = (
        (lambda s: (s.bones.text, s.following), lambda sketch, kind: True),
        (lambda s: (s.bones.text, ""), lambda sketch, kind: True),
        (lambda s: (s.bones.text, s.previous), _Sketch.tells),
    )
    once = _unique(sketches_a) & _unique(sketches_b)
    found: dict[Unit, Varied] = {}
    for number, (key, counts) in enumerate(tests):
        places: dict[tuple[str, str], _Sketch] = {}
        for sketch in sketches_a:
            places.setdefault(key(sketch), sketch)
        for sketch in sketches_b:
            partner = places.get(key(sketch))
            if partner is None or sketch.unit in found or (number == 1 and sketch.bones.text not in once):
                continue
            changed = [kind for kind in partner.bones.changed(sketch.bones) if counts(sketch, kind)]
            if changed:
                ranked = "rank_label" in changed and _ranked(pair, partner.unit, sketch.unit)
                kinds = tuple(kind for kind in changed if kind != "rank_label" or ranked)
                found[sketch.unit] = Varied(partner.unit, sketch.unit, kinds)
    return tuple(found[unit] for unit in sorted(found, key=lambda unit: (unit.part, unit.start)))


def _unique(sketches: list[_Sketch]) -> set[str]:
    """Return the skeletons with much plain text that stand once: many records of one form are not one thing."""
    counts = Counter(sketch.bones.text for sketch in sketches if sketch.bones.rest >= _PLAIN)
    return {text for text, count in counts.items() if count == 1}


def _sketches(side: Side) -> Iterator[_Sketch]:
    own = set(side.own)
    bones = {unit: skeleton(unit.text, system=side.role(unit) in SYSTEM) for unit in own}
    behind: list[tuple[str, bool]] = []
    following, alone, last = "$", True, -1
    for unit in reversed(side.units):
        behind.append((following, alone or unit.part != last))
        following = unit.text if unit.long else following
        alone = unit not in own or (behind[-1][1] and bool(_PERSONAL.intersection(bones[unit].kinds)))
        last = unit.part
    previous = "^"
    for unit, (following, alone) in zip(side.units, reversed(behind), strict=True):
        if unit in own and bones[unit].found:
            yield _Sketch(unit, bones[unit], previous, following, alone and unit.text not in side.elsewhere)
        previous = unit.text if unit.long else previous


def personal_units(varied: Iterable[Varied]) -> set[Unit]:
    """Return the units that differ in what they say of who asks."""
    return {unit for both in varied if _PERSONAL.intersection(both.kinds) for unit in (both.a, both.b)}


def _ranked(pair: Pair, a: Unit, b: Unit) -> bool:
    """Tell labels of rank from labels of position, which count up in both prompts and only follow the order."""
    if any(len(numbers(unit.text)) > 1 for unit in (a, b)):
        return True
    for side, unit in ((pair.a, a), (pair.b, b)):
        labels = head_labels(other.text for other in side.units if other.part == unit.part)
        if list(labels) != sorted(labels):
            return True
    return False
