"""From the labels in an answer back to the documents (docs: "Citations"). Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from contextpilot_core.checks import same
from contextpilot_core.errors import RequestTypeError
from contextpilot_core.prompt.visible import Given, MessageRecord
from contextpilot_core.types import ContextBlock, Source

_T = TypeVar("_T")
_MOST_ALIKE = 64
_MOST_IN_RANGE = 100
# A separator stands between any two numbers, so that there is one way to read them: an answer cannot make this slow.
_MORE = r"\s?(?:,|;|&|and|, and|[-\u2013\u2014]|to)\s?(?:docs?\.?\s?)?\d{1,9}"
_TITLE = r"(?:\s?[:|,]\s?[^\W\d][^\[\]\u3010\u3011\n]{0,200})?"
_CITED = re.compile(rf"[\[\u3010]\s?docs?\.?\s?(\d{{1,9}}(?:{_MORE})*){_TITLE}\s?[\]\u3011]", re.IGNORECASE)
_NUMBER = re.compile(r"([-\u2013\u2014]|to)?\s?(?:docs?\.?\s?)?(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a label in one message stands for: the body's digest, and the caller's blocks that had it."""

    label: int
    digest: bytes
    blocks: tuple[ContextBlock, ...]


@dataclass(frozen=True)
class Citations(Generic[_T]):
    """What an answer cites, each once, in the order in which it is first named.

    sources: by label. unknown: numbers that stand for nothing that the prompt shows, or not for one thing only.
    """

    sources: Mapping[int, _T]
    unknown: tuple[int, ...]


def citations(answer: str, sources: Mapping[int, _T]) -> Citations[_T]:
    """Return what the ``[Doc n]`` of an answer stand for, by ``sources`` (`Plan.sources` and the like).

    Forms that models make of a label are read as well: ``[doc 2]``, ``[Doc 1, 3]``, ``[Doc 1, Doc 3]``,
    ``[Docs 1 and 3]``, ``[Doc 1-3]``, ``[Doc 2: tea.pdf]``. Nothing is guessed: a number that no source has is
    ``unknown``.

    Raises:
        RequestTypeError: the answer is no text, or the sources are no mapping.
    """
    if not isinstance(answer, str) or not isinstance(sources, Mapping):
        raise RequestTypeError(
            f"answer is a {type(answer).__name__} and sources a {type(sources).__name__}; give the text of an answer, "
            "and the sources of its plan"
        )
    cited = dict.fromkeys(label for found in _CITED.findall(answer) for label in _labels(found))
    return Citations(
        sources={label: sources[label] for label in cited if label in sources},
        unknown=tuple([label for label in cited if label not in sources]),
    )


def _labels(numbers: str) -> Iterable[int]:
    """Yield the labels of one citation; of a range, its ends and what lies between."""
    last = 0
    for to, number in _NUMBER.findall(numbers):
        label = int(number)
        if to and last < label <= last + _MOST_IN_RANGE:
            yield from range(last + 1, label)
        yield label
        last = label


def shown_documents(given: Given) -> tuple[Shown, ...]:
    """Return what the labels of one message stand for, with the blocks that were left out as repeats."""
    order, labels, digests, blocks = given.order, given.labels, given.digests, given.blocks
    sent, left_out = set(order), dict[bytes, list[int]]()
    for position, digest in enumerate(digests):
        if position not in sent:
            left_out.setdefault(digest, []).append(position)
    found = []
    for position, label in zip(order, labels, strict=True):
        if label is not None:
            others = left_out.get(digests[position], ())
            found.append(Shown(label, digests[position], tuple([_block(blocks[p]) for p in (position, *others)])))
    return tuple(found)


def sources_of(messages: Iterable[Iterable[Shown]]) -> dict[int, Source]:
    """Return what the labels of several messages stand for; none for a label that stands for more than one text."""
    digests: dict[int, bytes] = {}
    blocks: dict[int, _Different] = {}
    unclear = set()
    for message in messages:
        for shown in message:
            if digests.setdefault(shown.label, shown.digest) != shown.digest:
                unclear.add(shown.label)
            blocks.setdefault(shown.label, _Different()).add(shown.blocks)
    return {
        label: Source(label=label, blocks=tuple(different.found))
        for label, different in sorted(blocks.items())
        if label not in unclear
    }


def read_documents(record: MessageRecord, text: str) -> tuple[Shown, ...]:
    """Return what can be read from the message itself, where another process knew its documents: whole texts."""
    starts = {label: text[start : start + length] for label, start, length in record.pieces}
    whole = [(label, digest) for digest, label in record.labels if label in starts]
    return tuple([Shown(label, digest, (ContextBlock(text=starts[label]),)) for label, digest in whole])


def _block(block: str | ContextBlock) -> ContextBlock:
    return ContextBlock(text=block) if isinstance(block, str) else block


class _Different:
    """Blocks, each once: those that differ in nothing but their metadata are compared with the first few of their kind.

    (Any number may have one text, so comparing all with all would take too long.)
    """

    def __init__(self) -> None:
        self.found: list[ContextBlock] = []
        self._objects: set[int] = set()
        self._alike: dict[int, list[ContextBlock]] = {}

    def add(self, blocks: Iterable[ContextBlock]) -> None:
        """Add those that are not there yet."""
        for block in blocks:
            alike = self._alike.setdefault(_hash(block), [])
            if id(block) in self._objects or any(same(block, other) for other in alike[:_MOST_ALIKE]):
                continue
            alike.append(block)
            self.found.append(block)
            self._objects.add(id(block))


def _hash(block: ContextBlock) -> int:
    try:
        return hash(block)
    except Exception:  # noqa: BLE001  # an id may be anything
        return hash((block.text, block.title))
