"""De-duplication, reversible: whole blocks in messages that we did not render, and spans inside blocks.

Whatever a hash finds is verified on the text, character by character: a collision costs time and nothing else.
"""

import re
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from contextpilot_core.prompt.boundaries import is_structured, whole_words
from contextpilot_core.prompt.winnowing import CERTAIN, GRAM, scan
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import Segment, SpanSource

MAX_PARAGRAPHS = 4096
MIN_SPAN = CERTAIN + 1

_CANDIDATES = 8
_PLACES = 64
_HALF, _WORD = np.uint64(32), np.uint64(0xFFFFFFFF)
_PATIENCE = 4
_NEAR = 32
_BLANK_LINES = re.compile(r"\n[ \t\r]*\n\s*")


# --- whole blocks in messages that we did not render (docs: De-duplication, rule 1b)


@dataclass(frozen=True, slots=True)
class MessageProfile:
    """Where a message's paragraphs start: sorted ``checksum << 32 | offset``, 8 bytes each, of the first 4,096."""

    paragraphs: "array[int]"


def profile(text: str) -> MessageProfile:
    """Index the paragraphs (runs of lines between blank lines) of a message, in one pass over its text."""
    marks = [(checksum << 32) | at for checksum, at in _paragraphs(text, MAX_PARAGRAPHS)]
    return MessageProfile(array("Q", sorted(marks)))


class Paragraphs:
    """Where the paragraphs of several messages start: tells which bodies stand among them as a whole.

    A body costs as much as it is long, however many messages there are; the answer is verified on their texts. A
    paragraph beyond the bound of a profile counts as absent, and one that stands in many places is looked at in the
    first of them only.
    """

    def __init__(self, messages: Sequence[tuple[MessageProfile, str]]) -> None:
        self._texts = [text for _, text in messages]
        marks = [np.frombuffer(profile.paragraphs, np.uint64) for profile, _ in messages]
        joined = np.concatenate([np.empty(0, np.uint64), *marks])
        order = np.argsort(joined >> _HALF, kind="stable")
        self._checksums = (joined >> _HALF)[order]
        self._offsets = (joined & _WORD)[order]
        self._owners = np.repeat(np.arange(len(marks)), list(map(len, marks)))[order]

    def show(self, body: str) -> bool:
        """Tell whether ``body`` stands in a message whole, bounded by blank lines or the ends of the message."""
        keys = list(_paragraphs(body, MAX_PARAGRAPHS + 1))
        if not keys or not self._texts:
            return False
        checksums = np.array([checksum for checksum, _ in keys], np.uint64)
        first = np.searchsorted(self._checksums, checksums, "left")
        places = np.searchsorted(self._checksums, checksums, "right") - first
        rarest = int(places.argmin())
        start, within = int(first[rarest]), keys[rarest][1]
        for place in range(start, start + min(int(places[rarest]), _PLACES)):
            text, at = self._texts[self._owners[place]], int(self._offsets[place]) - within
            if at >= 0 and text.startswith(body, at) and _bounded(text, at, body):
                return True
        return False


def _paragraphs(text: str, most: int) -> Iterable[tuple[int, int]]:
    """Yield (checksum, offset) of the first ``most`` paragraphs, white space at their ends left out."""
    start = 0
    while start < len(text) and most > 0:
        blank = _BLANK_LINES.search(text, start)
        end, following = (blank.start(), blank.end()) if blank else (len(text), len(text))
        paragraph = text[start:end].lstrip()
        offset = end - len(paragraph)
        paragraph = paragraph.rstrip()
        if paragraph:
            yield zlib.crc32(paragraph.encode("utf-8", "surrogatepass")), offset
            most -= 1
        start = following


def _bounded(text: str, start: int, body: str) -> bool:
    """Tell whether the body at ``start`` has a blank line or an end of the text on both sides."""
    first = start + len(body) - len(body.lstrip())
    last = start + len(body.rstrip())
    before, after = text[max(0, first - _NEAR) : first], text[last : last + _NEAR]
    left, right = before[len(before.rstrip()) :], after[: len(after) - len(after.lstrip())]
    return (len(left) == first or left.count("\n") > 1) and (last + len(right) == len(text) or right.count("\n") > 1)


# --- spans (docs: De-duplication, rule 3)


def sources_in(text: str, pieces: Iterable[tuple[int, int, int]]) -> tuple[SpanSource, ...]:
    """Return the sources of a rendered text from its (label, start, length) pieces, hashed in one pass."""
    usable = [(label, text[start : start + length]) for label, start, length in pieces if length >= MIN_SPAN]
    tables = scan([run for _, run in usable]).tables()
    return tuple([SpanSource(label, run, table) for (label, run), table in zip(usable, tables, strict=True)])


Marks = Sequence[tuple[int, int]]
"""(offset, hash) of anchors of one text that occur elsewhere, too."""


def common_marks(bodies: Sequence[str], earlier: Sequence[SpanSource]) -> list[list[tuple[int, int]]]:
    """Return, per body, the anchors that it shares with itself, another one or an earlier source, in any order."""
    found = scan(bodies)
    own = set(found.hashes.tolist()) if earlier else set()
    return found.marks(own.intersection(chain.from_iterable([source.anchors for source in earlier])))


def split_blocks(
    blocks: Sequence[tuple[int, str]],
    earlier: Sequence[SpanSource],
    *,
    span_hint: str,
    count: TokenCounter,
    min_chars: int = MIN_SPAN,
    unclear: Collection[int] = (),
    marks: Sequence[Marks] | None = None,
) -> tuple[tuple[Segment, ...], ...]:
    """Cut every block into what is sent and what an earlier text already shows.

    Args:
        blocks: (label, body) in the order of the prompt. A block is a source for those after it, by what it shows
            literally alone, so no hint points to a hint.
        earlier: sources that the prompt shows before these blocks, earliest first.
        span_hint: the words that replace a span; ``{label}`` stands for the number.
        count: the engine's token counter; a span is replaced only if it has more tokens than its hint.
        unclear: labels of ``blocks`` that the prompt already shows for something else: no hint may name them.
        min_chars: characters that a span has at least, after it was cut back to whole sentences or words.
        marks: `common_marks` of the bodies, where the caller has them; those of other texts may be among them.

    Returns:
        The segments of each block; their texts, joined, are its body. Later blocks never change earlier ones.
    """
    marks = common_marks([body for _, body in blocks], earlier) if marks is None else marks
    if not any(marks):
        return tuple([(Segment(body),) for _, body in blocks])

    def worth(span: str, label: int) -> bool:
        return len(span) >= min_chars and count(span) > count(span_hint.replace("{label}", str(label)))

    shown = _Shown()
    keys = {key for own in marks for _, key in own} if earlier else set()
    for source in earlier:
        shown.add(source.label, source.text, [(source.anchors[key], key) for key in keys & source.anchors.keys()])
    result: list[tuple[Segment, ...]] = []
    for (label, body), own_marks in zip(blocks, marks, strict=True):
        segments = _segments(body, _spans(body, own_marks, shown, min_chars, worth))
        if label not in unclear:
            shown.add_literal(label, segments, own_marks)
        result.append(segments)
    return tuple(result)


class _Shown:
    """The texts that the prompt literally shows so far, with places (text number, offset) of each anchor."""

    def __init__(self) -> None:
        self.texts: list[tuple[int, str]] = []
        self.places: dict[int, list[tuple[int, int]]] = {}

    def add(self, label: int, text: str, marks: Marks) -> None:
        """Append a text; one place per anchor and text, and a bounded number of texts, the earliest."""
        if not marks:
            return
        number = len(self.texts)
        self.texts.append((label, text))
        for offset, key in marks:
            places = self.places.setdefault(key, [])
            if len(places) < _CANDIDATES and (not places or places[-1][0] != number):
                places.append((number, offset))

    def add_literal(self, label: int, segments: Sequence[Segment], marks: Marks) -> None:
        """Append the literal segments of a block, with those of its anchors that lie inside one."""
        if len(segments) == 1 and segments[0].label is None:
            return self.add(label, segments[0].text, marks)
        start = first = 0
        for segment in segments:
            end = start + len(segment.text)
            last = bisect_left(marks, (end - GRAM + 1,), first)
            if segment.label is None:
                self.add(label, segment.text, [(at - start, key) for at, key in marks[first:last]])
            first = bisect_left(marks, (end,), last)
            start = end


def _spans(
    body: str, marks: Marks, shown: _Shown, least: int, worth: Callable[[str, int], bool]
) -> list[tuple[int, int, int]]:
    """Return (start, end, label) of the spans to replace: from the left, each the longest at its anchor.

    ``least``: characters below which nothing is `worth` a hint. Where runs that are long enough are refused again and
    again (a text of short period without a boundary), the rest is sent: the work stays in proportion to the body.
    """
    if not marks or is_structured(body):
        return []
    spans: list[tuple[int, int, int]] = []
    floor, patience = 0, _PATIENCE * len(body)
    weighed: dict[tuple[int, int], int] = {}  # (text, shift) -> end of a common run that was refused
    for at, key in marks:
        if at < floor:
            continue
        best = (0, 0, 0)
        for number, there in shown.places.get(key, ()):
            if weighed.get((number, there - at), -1) > at:
                continue
            label, text = shown.texts[number]
            start, end = _common_run(body, at, text, there, floor)
            weighed[number, there - at] = end
            if end - start > best[1] - best[0]:
                best = (start, end, label)
        if best[1] - best[0] < max(1, least):  # cut back to whole words, it can only get shorter
            continue
        start, end = whole_words(body, best[0], best[1])
        if worth(body[start:end], best[2]):
            spans.append((start, end, best[2]))
            floor = end
            weighed.clear()
            continue
        patience -= best[1] - best[0]
        if patience < 0:
            break
    return spans


def _segments(body: str, spans: Sequence[tuple[int, int, int]]) -> tuple[Segment, ...]:
    """Return the body as literal segments and spans."""
    segments: list[Segment] = []
    at = 0
    for start, end, label in spans:
        if at < start:
            segments.append(Segment(body[at:start]))
        segments.append(Segment(body[start:end], label))
        at = end
    if at < len(body) or not spans:
        segments.append(Segment(body[at:]))
    return tuple(segments)


def _common_run(body: str, at: int, text: str, there: int, floor: int) -> tuple[int, int]:
    """Return the maximal run of ``body`` around ``at``, not before ``floor``, that equals ``text`` around ``there``."""
    return at - _behind(body, at, text, there, min(at - floor, there)), at + _ahead(body, at, text, there)


def _ahead(body: str, at: int, text: str, there: int) -> int:
    """Return how many characters from ``at`` on equal those from ``there`` on; it costs as many."""
    low, high, step = 0, min(len(body) - at, len(text) - there), GRAM
    while low < high:
        middle = min(low + step, high)
        if text.startswith(body[at + low : at + middle], there + low):
            low, step = middle, 2 * step
        elif middle == low + 1:
            break
        else:
            high, step = middle - 1, (middle - low) // 2
    return low


def _behind(body: str, at: int, text: str, there: int, limit: int) -> int:
    """Return how many characters, up to ``limit``, before ``at`` equal those before ``there``; it costs as many."""
    low, high, step = 0, limit, GRAM
    while low < high:
        middle = min(low + step, high)
        if text.startswith(body[at - middle : at - low], there - middle):
            low, step = middle, 2 * step
        elif middle == low + 1:
            break
        else:
            high, step = middle - 1, (middle - low) // 2
    return low
