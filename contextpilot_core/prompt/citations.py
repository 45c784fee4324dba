"""From the labels in an answer back to the documents (docs: "Citations"). Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from contextpilot_core.checks import same
from contextpilot_core.prompt.visible import Given, MessageRecord
from contextpilot_core.types import ContextBlock, Source

_T = TypeVar("_T")
# A separator stands between any two numbers, so that there is one way to read them: an answer cannot make this slow.
_MORE = r"\s?(?:,|;|&|and|, and)\s?(?:docs?\.?\s?)?\d{1,9}"
_CITED = re.compile(rf"\[\s?docs?\.?\s?(\d{{1,9}}(?:{_MORE})*)\s?\]", re.IGNORECASE)


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
    ``[Docs 1 and 3]``. Nothing is guessed: a number that no source has is ``unknown``.
    """
    cited = dict.fromkeys(int(number) for found in _CITED.findall(answer) for number in re.findall(r"\d+", found))
    return Citations(
        sources={label: sources[label] for label in cited if label in sources},
        unknown=tuple([label for label in cited if label not in sources]),
    )


def shown_documents(given: Given) -> tuple[Shown, ...]:
    """Return what the labels of one message stand for, with the blocks that were left out as repeats."""
    order, labels, digests, blocks = given.order, given.labels, given.digests, given.blocks
    sent, alike = set(order), dict[bytes, list[int]]()
    for position, digest in enumerate(digests):
        alike.setdefault(digest, []).append(position)
    found = []
    for position, label in zip(order, labels, strict=True):
        if label is not None:
            others = [other for other in alike[digests[position]] if other not in sent]
            found.append(Shown(label, digests[position], tuple([_block(blocks[p]) for p in (position, *others)])))
    return tuple(found)


def sources_of(messages: Iterable[Iterable[Shown]]) -> dict[int, Source]:
    """Return what the labels of several messages stand for; none for a label that stands for more than one text."""
    digests: dict[int, bytes] = {}
    blocks: dict[int, list[ContextBlock]] = {}
    unclear = set()
    for message in messages:
        for shown in message:
            if digests.setdefault(shown.label, shown.digest) != shown.digest:
                unclear.add(shown.label)
            known = blocks.setdefault(shown.label, [])
            for block in shown.blocks:
                if not any(same(block, other) for other in known):
                    known.append(block)
    return {
        label: Source(label=label, blocks=tuple(found))
        for label, found in sorted(blocks.items())
        if label not in unclear
    }


def read_documents(record: MessageRecord, text: str) -> tuple[Shown, ...]:
    """Return what can be read from the message itself, where another process knew its documents: whole texts."""
    starts = {label: text[start : start + length] for label, start, length in record.pieces}
    whole = [(label, digest) for digest, label in record.labels if label in starts]
    return tuple([Shown(label, digest, (ContextBlock(text=starts[label]),)) for label, digest in whole])


def _block(block: str | ContextBlock) -> ContextBlock:
    return ContextBlock(text=block) if isinstance(block, str) else block
