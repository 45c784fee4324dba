"""What tends to vary inside text that is otherwise the same: found by pattern, blanked out to compare the rest."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from contextpilot_core.diagnose.personal import PERSONAL, PersonalKind

MaskKind: TypeAlias = Literal["clock", "id", "score", "path", "rank_label"] | PersonalKind
LONGEST_MASKED = 20_000  # characters; beyond, a unit is data (an image, a dump), not text

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)[a-z]*"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?\.?"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"

_HEAD_LABEL = r"""
    ^[\W_]{0,3}(?:doc(?:ument)?|source|passage|context|chunk|result|snippet|reference)[ _\#-]{0,3}\d{1,3}(?!\w)
  | ^[(\[{\#]?\d{1,3}(?=[\])}]|[.:](?:\s|$))
"""
_RANK_LABEL = rf"""
    \b(?:relevance|order)[^\n\d]{{0,40}}\d+(?:[^\n\d.]{{1,12}}\d+)+                # a note: Relevance: 4 1 2
  | \brank["']?\s*(?:[:=]\s*)?\#?\d{{1,4}}\b
  | {_HEAD_LABEL}
"""
_ID = r"""
    (?<![A-Za-z])(?:[A-Za-z]+[_\ -])?(?:id|uuid|guid)["']?\s*[:=]\s*["']?[\w-]+
  | \b(?-i:[a-z]+I[dD])["']?\s*[:=]\s*["']?[\w-]+
  | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
  | \b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b
"""
_CLOCK = rf"""
    \b\d{{4}}[-/]\d{{2}}[-/]\d{{2}}(?:[T\ ]\d{{2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?)?
    (?:\ ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?\b
  | \b\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{2,4}}\b
  | \b\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?:\ ?[ap]\.?m\b)?(?:\ ?(?:Z|UTC|GMT|CES?T)\b)?
  | \b(?:{_DAY}\ (?:of\ )?{_MONTH}|{_MONTH}\ {_DAY})(?:,?\ \d{{4}})?\b
  | \b{_MONTH}\ \d{{4}}\b
  | \b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b
  | \b1[4-9]\d{{8}}(?:\d{{3}})?(?:\.\d+)?\b                                       # seconds or milliseconds since 1970
"""
_SCORE = rf"""
    \b\w*(?:score|relevance|similarity|distance|confidence)["']?\s*[:=]\s*(?:np\.float\d+\()?{_NUMBER}%?
  | (?<![\w.])-?\d\.\d{{2,}}(?:e-?\d+)?(?!\w|\.\w)
"""
_PATH = r"""
    (?<![\w/])(?:/[\w.@+-]+){2,}
  | \b[A-Za-z]:\\[\w.\\-]+
"""
_KINDS = f"(?P<rank_label>{_RANK_LABEL})|(?P<id>{_ID})|(?P<score>{_SCORE})|(?P<clock>{_CLOCK})|(?P<path>{_PATH})"
_MASK = re.compile(_KINDS, re.VERBOSE | re.IGNORECASE)
_SYSTEM_MASK = re.compile(f"{PERSONAL}|{_KINDS}", re.VERBOSE | re.IGNORECASE)
_LABEL = re.compile(_HEAD_LABEL, re.VERBOSE | re.IGNORECASE)
_NAMES_NOW = re.compile(r"\b(?:now|today|current|currently|clock|time|generated|asked|as of)\b", re.IGNORECASE)
_PAIRS = re.compile(r"(?:^[ \t]*[\w .-]{1,40}: ?[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
_BRACES = re.compile(r"\{[^{}]{3,}\}")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A text with what tends to vary blanked out; ``found``: (kind, text) of each blank; ``rest``: characters left."""

    text: str
    found: tuple[tuple[MaskKind, str], ...]
    rest: int

    @property
    def kinds(self) -> tuple[MaskKind, ...]:
        """The kinds of the blanks."""
        return tuple(kind for kind, _ in self.found)

    def changed(self, other: "Skeleton") -> tuple[MaskKind, ...]:
        """Return the kinds that differ between two texts of the same skeleton, in the order of the text."""
        pairs = zip(self.found, other.found, strict=True)
        return tuple(dict.fromkeys(left[0] for left, right in pairs if left != right))


def skeleton(text: str, *, system: bool = False) -> Skeleton:
    """Blank out clocks, scores, ids, paths and rank labels; of a system message also what it says of who asks."""
    if len(text) > LONGEST_MASKED:
        return Skeleton(text, (), len(text))
    found: list[tuple[MaskKind, str]] = []

    def blank(match: re.Match[str]) -> str:
        found.append((cast(MaskKind, match.lastgroup), match[0]))
        return f"\0{match.lastgroup}\0"

    masked = (_SYSTEM_MASK if system else _MASK).sub(blank, text)
    return Skeleton(masked, tuple(found), len(text) - sum(len(part) for _, part in found))


def names_now(text: str) -> bool:
    """Tell whether a text speaks of the present time."""
    return _NAMES_NOW.search(text) is not None


def head_labels(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of those texts that begin with a label like ``[Doc 3]`` or ``3.``, in order."""
    found = (_LABEL.match(text) for text in texts)
    return tuple(number for match in found if match for number in numbers(match[0]))


def numbers(text: str) -> tuple[int, ...]:
    """Return the whole numbers in a text, in order; of one that is too long for a label its beginning."""
    return tuple([int(digits[:18]) for digits in re.findall(r"[0-9]+", text)])


def mappings(text: str) -> dict[tuple[str, ...], tuple[int, str]]:
    """Return the printed mappings: sorted entries -> (offset, text); braces, and runs of ``key: value`` lines."""
    found: dict[tuple[str, ...], tuple[int, str]] = {}
    for pattern, separator in ((_BRACES, ","), (_PAIRS, "\n")):
        for match in pattern.finditer(text):
            entries = [entry.strip() for entry in match[0].strip("{}\n").split(separator)]
            if len(entries) > 1:
                found.setdefault(tuple(sorted(entries)), (match.start(), "\n".join(entries)))
    return found
