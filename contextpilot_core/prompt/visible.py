"""What the messages of a prompt show, and so need not be sent again (docs: "De-duplication", rule 1).

Records are made when a message is rendered; they are only ever used for a message that stands in the prompt at hand.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from contextpilot_core.config import EngineConfig
from contextpilot_core.prompt.layout import RenderedContext
from contextpilot_core.prompt.spans import MessageProfile, Paragraphs, profile, sources_in
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import ContextBlock, Segment, SpanSource, cached_property, kept_bytes

# A label alone on its line, whatever ends a line; of what may stand before it, nothing crosses one: so it is linear.
_LINE_ENDS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_BLANKS = rf"[^\S{_LINE_ENDS}]*"
_LABEL_LINE = re.compile(
    rf"(?:^|(?<=[{_LINE_ENDS}])){_BLANKS}(?:[>*#|-]{_BLANKS})*\[Doc (\d{{1,9}})\]{_BLANKS}(?=[{_LINE_ENDS}]|\Z)"
)
_NO_LABELS: frozenset[int] = frozenset()
_FENCED_BELOW = re.compile(r"\s*(?:[>*#|-]\s*)*(?:={3}|`{3}|~{3})")


# Bytes of memory, measured: an object with what it is found by; the entries of one block; what a character takes in
# `MessageRecord.sources`, a copy of the text included.
_EACH, _PER_BLOCK, _PER_LABEL, _PER_CHARACTER = 1_500, 300, 100, 8


@dataclass(frozen=True)
class MessageRecord:
    """What one rendered message shows.

    labels: (body digest, label) of blocks that stand there literally as a whole.
    rendered: every label that stands there, whatever is left of its block.
    doubtful: labels that its documents, or the rest of the message (its question), seem to show, too.
    highest: the highest label that the message renders or points to (0: none).
    path: (digest, tokens) of the leading blocks before the first hint: their place in the prefix cache.
    pieces: (label, start, length) of every literal run in the message's text.
    """

    labels: tuple[tuple[bytes, int], ...]
    rendered: frozenset[int]
    doubtful: frozenset[int]
    highest: int
    path: tuple[tuple[bytes, int], ...]
    pieces: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes, with `sources`; the same in every process."""
        shown = sum([length for _, _, length in self.pieces])
        return _EACH + _PER_BLOCK * (len(self.pieces) + len(self.labels) + len(self.path)) + _PER_CHARACTER * shown

    def sources(self, text: str) -> Sequence[SpanSource]:
        """Return the literal runs with their anchors; ``text`` is the message's. Worked out once per record."""
        known: Sequence[SpanSource] | None = self.__dict__.get("_sources")  # no field: it follows from the others
        if known is None:
            known = self.__dict__["_sources"] = sources_in(text, self.pieces)
        return known


@dataclass(frozen=True, slots=True)
class Given:
    """What a message was rendered from, for whoever asks what its labels stand for (`citations.shown_documents`).

    ``order`` and ``labels`` by place; ``digests`` and ``blocks`` by position in the caller's list.
    """

    order: Sequence[int]
    labels: Sequence[int | None]
    digests: Sequence[bytes]
    blocks: Sequence[str | ContextBlock]

    @property
    def size(self) -> int:
        """About how many bytes of memory it keeps from being freed: the texts, and what callers gave with them."""
        return _EACH + _PER_BLOCK * len(self.blocks) + sum(map(_kept, self.blocks))


@dataclass(frozen=True)
class ForeignRecord:
    """What is known of a message that we did not render, or no longer know.

    profile: finds whole blocks in its text; None where no hint may point.
    labels: numbers of what looks like our label lines, in any shape: a hint to one of them could be misread.
    """

    profile: MessageProfile | None
    labels: frozenset[int]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        marks = 0 if self.profile is None else len(self.profile.paragraphs)
        return _EACH + 8 * marks + _PER_LABEL * len(self.labels)


Known = MessageRecord | ForeignRecord


@dataclass(frozen=True)
class Visible:
    """What the messages of one request show, in the order of the messages.

    ``given``: what every message in ``shown`` was rendered from, None where only other processes know. ``doubtful``:
    labels that what is new in the request seems to show, too. ``named``: the highest label that answers may name,
    although the messages no longer show what it stood for (0: none).
    """

    shown: tuple[tuple[MessageRecord, str], ...] = ()
    foreign: tuple[tuple[ForeignRecord, str | None], ...] = ()
    known: tuple[tuple[bytes, Known], ...] = ()
    given: tuple[Given | None, ...] = ()
    doubtful: frozenset[int] = frozenset()
    named: int = 0

    @cached_property
    def unclear(self) -> frozenset[int]:
        """Labels that stand for more than one thing, or may: no hint names one of them."""
        uses = Counter(label for record, _ in self.shown for label in record.rendered)
        doubtful = [label for record, _ in self.foreign for label in record.labels]
        doubtful += [label for record, _ in self.shown for label in record.doubtful]
        return self.doubtful.union(doubtful, [label for label, number in uses.items() if number > 1])

    @cached_property
    def labels(self) -> Mapping[bytes, int]:
        """Body digest -> label of its first occurrence under a label that is clear."""
        found: dict[bytes, int] = {}
        for record, _ in self.shown:
            for digest, label in record.labels:
                if label not in self.unclear:
                    found.setdefault(digest, label)
        return found

    @property
    def next_label(self) -> int:
        """One more than the highest label that we rendered and that is visible, or named; 1 without any."""
        return 1 + max([self.named, *[record.highest for record, _ in self.shown]])

    @cached_property
    def readable(self) -> tuple[tuple[MessageProfile, str], ...]:
        """Messages that we did not render and that a hint may point to (docs: rule 1b)."""
        found = [(record.profile, text) for record, text in self.foreign]
        return tuple([(profile, text) for profile, text in found if profile is not None and text is not None])

    def shows_unlabelled(self, body: str) -> bool:
        """Tell whether a message that we did not render holds ``body`` as a whole (docs: rule 1b)."""
        return bool(self.readable) and self._paragraphs.show(body)

    @cached_property
    def _paragraphs(self) -> Paragraphs:
        return Paragraphs(self.readable)

    def hints(
        self,
        positions: Sequence[int],
        bodies: Sequence[str],
        digests: Sequence[bytes],
        tokens: Sequence[int],
        config: EngineConfig,
        count: TokenCounter,
    ) -> dict[int, int | None]:
        """Return label by position (None: unlabelled) for the blocks that need not be sent again.

        ``tokens``: those of the bodies. A hint that would cost as much as its block is not used (docs: rule 4).
        """
        found: dict[int, int | None] = {}
        if not config.dedup or not self.known_messages:
            return found
        costs: dict[int | None, int] = {}
        for position in positions:
            body = bodies[position]
            target = self.labels.get(digests[position])
            if target is None and not self.shows_unlabelled(body):
                continue
            if target not in costs:
                costs[target] = count(
                    config.unlabelled_hint if target is None else config.hint.replace("{label}", str(target))
                )
            if costs[target] < tokens[position]:
                found[position] = target
        return found

    @property
    def known_messages(self) -> int:
        """How many messages a hint could point to."""
        return len(self.shown) + len(self.foreign)

    @cached_property
    def sources(self) -> list[SpanSource]:
        """Every literal run that the messages show under a clear label, first message first."""
        runs = (source for record, text in self.shown for source in record.sources(text))
        return [source for source in runs if source.label not in self.unclear]


NOTHING = Visible()


def foreign_record(content: object, *, readable: bool, answer: bool = False) -> ForeignRecord:
    """Read the content of a message once: its paragraphs, if a hint may point there, and what looks like our labels.

    In an ``answer`` of the model a label is a citation: it names the document above, as a hint does, and shows nothing
    in its place. That is safe as long as nothing is shown under it. A label above a fence may be a block that a
    document has talked the model into writing, and a hint could be read as pointing there: that label stays doubtful.
    The price of a false doubt is the full text once more; that of a false trust would be a document nobody sent.
    """
    labels = {
        int(line[1])
        for text in _texts(content)
        for line in _label_lines(text)
        if not answer or _FENCED_BELOW.match(text, line.end())
    }
    return ForeignRecord(profile(content) if readable and isinstance(content, str) else None, frozenset(labels))


def message_record(
    blocks: Sequence[tuple[bytes, int, tuple[Segment, ...]]],
    hinted: Sequence[int | None],
    context: RenderedContext,
    doubtful: frozenset[int] = frozenset(),
    path: tuple[tuple[bytes, int], ...] = (),
) -> MessageRecord:
    """Record what a rendered message shows: (digest, label, segments) of sent blocks, labels of hints, and doubts."""
    named = [segment.label or 0 for _, _, run in blocks for segment in run] + [label or 0 for label in hinted]
    return MessageRecord(
        labels=tuple([(digest, label) for digest, label, run in blocks if len(run) == 1 and run[0].label is None]),
        rendered=frozenset(label for _, label, _ in blocks),
        doubtful=doubtful,
        highest=max(named + [label for _, label, _ in blocks], default=0),
        path=path,
        pieces=context.pieces,
    )


def label_lines(texts: Iterable[str]) -> frozenset[int]:
    """Return the numbers of what looks like our label lines in documents and questions: no hint may name them."""
    found = [text for text in texts if "[" in text and "[Doc " in text]  # one character is found much faster
    return frozenset([int(line[1]) for text in found for line in _LABEL_LINE.finditer(text)]) if found else _NO_LABELS


def _label_lines(text: str) -> Iterable[re.Match[str]]:
    # One character is found far sooner than five, and most texts have none.
    return _LABEL_LINE.finditer(text) if "[" in text and "[Doc " in text else ()


def _kept(block: str | ContextBlock) -> int:
    if isinstance(block, str):
        return sys.getsizeof(block)
    size = sys.getsizeof(block.text) + sys.getsizeof(block.title)
    for value in (block.id, block.metadata):
        if value is not None:
            size += sys.getsizeof(value) if isinstance(value, str) else kept_bytes(value)
    return size


def _texts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, (list, tuple)) else (content,):
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
