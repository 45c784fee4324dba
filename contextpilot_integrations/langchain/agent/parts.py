"""A text that shows documents taken apart: where each of them stands, and what belongs to it. Pure.

All that is known is the text and the documents: a tool may put around them what it likes. So nothing is guessed. What
surely belongs to one document (the lines at its text, in the form that they have at the others) goes with it;
everything else stays where it is; and a text in which the documents cannot be found for sure is not taken apart.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core.prompt import is_structured

_WORD_AND_NUMBER = r"[^\w\n]*(?:[^\W\d_]+[ #:.]+)?([0-9]{1,9})[^\w\s]*"
_HEAD = re.compile(rf"{_WORD_AND_NUMBER}(?:\s+|\Z)")
"""A head such as ``2. ``, ``[2] ``, ``Document 2: ``."""
_TAIL = re.compile(rf"\s*{_WORD_AND_NUMBER}\s*\Z")
_ATTRIBUTE = re.compile(r"""=["']?([0-9]{1,9})["']?(?=[\s/>])""")
"""A number in a tag: ``<document index="2">``."""


@dataclass(frozen=True)
class Part:
    """A document in a text: its position in the caller's list, its text, and what belongs to it on both sides."""

    position: int
    before: str
    text: str
    after: str

    @property
    def whole(self) -> str:
        """The document as the text shows it."""
        return self.before + self.text + self.after


@dataclass(frozen=True)
class Parts:
    """``around`` stands before, between and behind the ``parts``; it is one longer than they are."""

    around: tuple[str, ...]
    parts: tuple[Part, ...]

    def joined(self) -> str:
        """Return the text that was taken apart, byte for byte."""
        pairs = zip(self.around, self.parts, strict=False)
        return "".join([piece for gap, part in pairs for piece in (gap, part.whole)]) + self.around[-1]


def take_apart(content: str, texts: Sequence[str]) -> Parts | None:
    """Find the texts in ``content``, in their order; empty ones are left out. None: not for sure, or it has a form.

    They are found for sure when there is but one way to find them one behind the other, as whole words, each on lines
    of its own. Spaces at their ends do not matter. JSON, tables and code keep their form: they are not taken apart.
    """
    texts = [text.strip() for text in texts]
    positions = [position for position, text in enumerate(texts) if text]
    spans = _spans(content, [texts[position] for position in positions])
    starts, ends = [*[start for start, _ in spans], len(content)], [0, *[end for _, end in spans]]
    gaps = [content[end:start] for end, start in zip(ends, starts, strict=True)]
    if not spans or _has_form(content, gaps) or not all("\n" in gap for gap in gaps[1:-1]):
        return None
    befores, afters = _belonging(gaps)
    parts = [
        Part(position, before, texts[position], after)
        for position, before, after in zip(positions, befores, afters, strict=True)
    ]
    cut = zip(gaps, ["", *afters], [*befores, ""], strict=True)
    return Parts(tuple([gap[len(after) : len(gap) - len(before)] for gap, after, before in cut]), tuple(parts))


def _spans(content: str, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return start and end of each text, nothing unless that is the only way: the first one is also the last one."""
    first, last, at, end = [], [], 0, len(content)
    for text in texts:
        found = content.find(text, at)
        if found < 0:
            return []
        at = found + len(text)
        first.append((found, at))
    for text in reversed(texts):
        found = content.rfind(text, 0, end)
        last.append((found, found + len(text)))
        end = found
    whole = all(not _inside_word(content, edge) for span in first for edge in span)
    return first if whole and first == last[::-1] else []


def _inside_word(content: str, at: int) -> bool:
    return 0 < at < len(content) and content[at - 1].isalnum() and content[at].isalnum()


def _has_form(content: str, gaps: Sequence[str]) -> bool:
    """Whether labels between the texts would break a form that others may read: JSON, tables, code."""
    if is_structured("text".join(gaps)):
        return True
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _belonging(gaps: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what belongs to each document before and behind its text, for sure; ``gaps``: all that is no text."""
    first, last = 0, len(gaps) - 2
    left = [_lines(gap, -1, whole=place == first) for place, gap in enumerate(gaps[:-1])]
    right = [_lines(gap, 1, whole=place == last) for place, gap in enumerate(gaps[1:])]
    heads = _depths(left, first, sure=not _has_words(gaps[-1]))
    tails = _depths(right, last, sure=not _has_words(gaps[0]))
    for place, gap in enumerate(gaps[1:-1]):
        if tails[place] + heads[place + 1] > gap.count("\n") + 1:
            heads, tails = [min(depth, 1) for depth in heads], [min(depth, 1) for depth in tails]
    befores = ["\n".join(lines[:depth][::-1]) for lines, depth in zip(left, heads, strict=True)]
    afters = ["\n".join(lines[:depth]) for lines, depth in zip(right, tails, strict=True)]
    return _unnumbered(befores, afters)


def _lines(gap: str, step: int, whole: bool) -> list[str]:
    """Return the lines of a gap at a text, the nearest first, up to one without words.

    The last one is the other text's, unless the gap is ``whole`` at one text: that before the first or behind the last.
    """
    lines = gap.split("\n")[::step]
    near = lines if whole else lines[:-1]
    return [near[0], *_until_blank(near[1:])]


def _until_blank(lines: Sequence[str]) -> list[str]:
    blank = next((place for place, line in enumerate(lines) if not _has_words(line)), len(lines))
    return list(lines[:blank])


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _depths(levels: Sequence[Sequence[str]], edge: int, sure: bool) -> list[int]:
    """Return how many lines belong to each text. ``sure``: no others can claim them.

    Else, and in the paragraph at the ``edge`` of the content, which may have a header or footer, they must be as the
    others' are.
    """
    depths = [len(lines) for lines in levels]
    if len(levels) == 1:
        return depths
    others = [depth for place, depth in enumerate(depths) if place != edge]
    if sure:
        depths[edge] = min(depths[edge], max(others))
        return depths
    alike = 0
    while alike < min(depths) and _alike([lines[alike] for lines in levels]):
        alike += 1
    return [alike] * len(levels)


def _alike(lines: Sequence[str]) -> bool:
    """Whether lines may be of one form: they are equal, or begin or end alike."""
    ends = os.path.commonprefix(lines), os.path.commonprefix([line[::-1] for line in lines])
    return len(set(lines)) == 1 or (all(map(_has_words, lines)) and any(each.strip() for each in ends))


def _unnumbered(befores: list[str], afters: list[str]) -> tuple[list[str], list[str]]:
    """Leave to the content what numbers its documents: the same one has another number when it comes again."""
    heads, tails = [_HEAD.match(before) for before in befores], [_TAIL.match(after) for after in afters]
    if _count([[head[1]] if head else [] for head in heads]):
        befores = [before[head.end() :] if head else before for before, head in zip(befores, heads, strict=True)]
    elif _count([_ATTRIBUTE.findall(before) for before in befores]):
        befores = afters = [""] * len(befores)
    if _count([[tail[1]] if tail else [] for tail in tails]):
        afters = [""] * len(afters)
    return [each if each.strip() else "" for each in befores], [each if each.strip() else "" for each in afters]


def _count(numbers: Sequence[Sequence[str]]) -> bool:
    """Tell whether one of each document's numbers counts the documents, from 0 or 1."""
    columns = [list(map(int, column)) for column in zip(*numbers, strict=False)]
    return any(column == list(range(start, start + len(column))) for column in columns for start in (0, 1))
