"""Anchors: few positions of a text, chosen by its content, by which shared runs of texts are found.

Of every 32 neighbouring grams (runs of 32 characters) the one with the smallest rolling hash is an anchor (winnowing,
Schleimer, Wilkerson, Aiken, SIGMOD 2003). Two texts that share `CERTAIN` characters in a row share an anchor there.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

GRAM = 32
CERTAIN = 2 * GRAM - 1
MAX_TEXT = 1 << 18  # characters; the anchors of longer texts would cost more than they save: they have none

_BATCH = 1 << 17  # characters that are scanned together: what is worked on stays in the processor's cache
_BASE, _MIX, _WORD = 0x9E3779B1, 0x86659FD3, 0xFFFFFFFF
_HALF = np.uint64(32)
_ACROSS = np.arange(GRAM - 1)


@dataclass(frozen=True, slots=True)
class Scan:
    """Anchors of several texts: hashes and ascending positions in the joined texts; where each text starts.

    Of neighbours with one hash (a text of short period) the first.
    """

    hashes: NDArray[np.uint32]
    positions: NDArray[np.intp]
    starts: list[int]

    def tables(self) -> list[dict[int, int]]:
        """Return, per text, hash -> first offset."""
        hashes, positions = self.hashes.tolist()[::-1], self.positions.tolist()[::-1]
        ends = (len(hashes) - np.searchsorted(self.positions, self.starts)).tolist()
        return [
            {key: at - start for key, at in zip(hashes[last:first], positions[last:first], strict=True)}
            for start, first, last in zip(self.starts, ends, ends[1:], strict=False)
        ]

    def marks(self, known: Collection[int] = ()) -> list[list[tuple[int, int]]]:
        """Return, per text, (offset, hash) of the anchors that occur again, in another place or among ``known``."""
        texts: list[list[tuple[int, int]]] = [[] for _ in self.starts[1:]]
        size = len(self.hashes)
        # Sorted by hash, then by place, in one go: a stable argsort takes longer.
        keyed = np.sort((self.hashes.astype(np.uint64) << _HALF) | np.arange(size, dtype=np.uint64))
        ascending, order = keyed >> _HALF, (keyed & np.uint64(_WORD)).astype(np.intp)
        equal = ascending[1:] == ascending[:-1]
        again = np.zeros(size, np.bool_)
        again[order[1:][equal]] = again[order[:-1][equal]] = True
        if known and size:
            keys = np.fromiter(known, np.uint64, len(known))
            first = np.minimum(np.searchsorted(ascending, keys), size - 1)
            again[order[first[ascending[first] == keys]]] = True  # the only place: those of others are marked above
        places = np.flatnonzero(again)
        if not len(places):
            return texts
        owner = np.searchsorted(self.starts, self.positions, side="right") - 1
        found = zip(owner[places].tolist(), self.positions[places].tolist(), self.hashes[places].tolist(), strict=True)
        for number, position, key in found:
            texts[number].append((position - self.starts[number], key))
        return texts


def scan(texts: Sequence[str]) -> Scan:
    """Find the anchors of all texts, in one pass where they are not too long together."""
    texts = [text if len(text) <= MAX_TEXT else "" for text in texts]
    starts = list(accumulate(map(len, texts), initial=0))
    if starts[-1] <= _BATCH:
        return Scan(*_anchor_arrays("".join(texts), starts[1:-1]), starts)
    parts = []
    first = 0
    while first < len(texts):
        last = max(first + 1, bisect_right(starts, starts[first] + _BATCH) - 1)  # as many as fit
        cuts = [cut - starts[first] for cut in starts[first + 1 : last]]
        hashes, positions = _anchor_arrays("".join(texts[first:last]), cuts)
        parts.append((hashes, positions + starts[first]))
        first = last
    return Scan(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), starts)


def _anchor_arrays(text: str, cuts: Sequence[int]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """Return hashes and ascending positions of the anchors of several texts, joined, with ``cuts`` between them.

    Grams across a cut are void. As they are 31, no 32 neighbours reach from one text into the next, so the anchors
    of a text are its own, whatever stands beside it. Arithmetic is modulo 2 ** 32.
    """
    if len(text) < GRAM:
        return np.empty(0, np.uint32), np.empty(0, np.intp)
    raw = text.encode("ascii") if text.isascii() else text.encode("utf-32-le", "surrogatepass")
    hashes = np.frombuffer(raw, np.uint8 if len(raw) == len(text) else np.dtype("<u4")).astype(np.uint32)
    step, factor = 1, _BASE
    while step < GRAM:  # a gram of 2 * step characters is two grams of step characters
        wider = hashes[:-step] * np.uint32(factor)
        wider += hashes[step:]
        hashes, step, factor = wider, 2 * step, factor * factor & _WORD
    padded = np.full(len(hashes) + 2 * GRAM - 2, _WORD, np.uint32)
    np.multiply(hashes, np.uint32(_MIX), out=padded[GRAM - 1 : 1 - GRAM])
    if cuts:
        padded[(np.array(cuts)[:, None] + _ACROSS).ravel()] = _WORD
    # An anchor is the least of some 32 neighbours: it equals the greatest of the minima around it.
    hashes = padded[GRAM - 1 : 1 - GRAM]
    positions = np.flatnonzero(hashes == _sliding(np.maximum, _sliding(np.minimum, padded)))
    chosen = hashes[positions]
    kept = chosen != _WORD
    kept[1:] &= chosen[1:] != chosen[:-1]
    if cuts:
        first = np.searchsorted(positions, cuts)  # of each text
        first = first[first < len(kept)]
        kept[first] = chosen[first] != _WORD
    return chosen[kept], positions[kept]


def _sliding(pick: np.ufunc, values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the least or the greatest of every 32 neighbours, by doubling."""
    step = 1
    while step < GRAM:
        values = pick(values[:-step], values[step:])
        step *= 2
    return values
