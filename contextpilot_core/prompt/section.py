"""The documents of one request as they stand in a prompt: numbered, each run of text once, rendered, recorded. Pure.

The one renderer: plans and the middleware of agents both write their documents with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contextpilot_core.config import EngineConfig
from contextpilot_core.prompt.layout import BlockItem, HintItem, RenderedContext, render_context
from contextpilot_core.prompt.messages import body_digest, distinct, sendable
from contextpilot_core.prompt.spans import Marks, common_marks, split_blocks
from contextpilot_core.prompt.visible import NOTHING, MessageRecord, Visible, label_lines, message_record
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import Segment

Segments = tuple[tuple[Segment, ...], ...]
"""Per place of an order the runs of the body, literal or replaced by a span hint; of a hint one run."""


@dataclass(frozen=True)
class Section:
    """Documents in the order of the prompt.

    order: positions in the caller's list. labels: numbers of ``[Doc n]``; for hints the target's, which may be None.
    """

    order: tuple[int, ...]
    labels: tuple[int | None, ...]
    segments: Segments
    hints: Mapping[int, int | None]
    context: RenderedContext

    def record(
        self, digests: Sequence[bytes], *, rest: str = "", path: tuple[tuple[bytes, int], ...] = ()
    ) -> MessageRecord:
        """Return what a message shows that begins with this section; ``rest``, ``path``: as in `message_record`."""
        places = zip(self.order, self.labels, self.segments, strict=True)
        sent = [(digests[position], label or 0, run) for position, label, run in places if position not in self.hints]
        hinted = [self.hints[position] for position in self.order if position in self.hints]
        return message_record(sent, hinted, self.context, rest, path)


class Sections:
    """The sections that one request may become, by order. What does not depend on the order is worked out once.

    ``bodies`` by position; ``positions``: those that may be sent; ``hints``: label by position, for what ``visible``
    shows already.
    """

    def __init__(
        self,
        bodies: Sequence[str],
        positions: Sequence[int],
        hints: Mapping[int, int | None],
        visible: Visible,
        config: EngineConfig,
        count: TokenCounter,
    ) -> None:
        self._bodies, self._positions, self._hints, self._visible = bodies, positions, hints, visible
        self._config, self._count, self._first = config, count, visible.next_label
        self._marks: dict[int, Marks] | None = None
        self._cut: dict[tuple[int, ...], Segments] = {}

    def labels(self, order: Sequence[int]) -> tuple[int | None, ...]:
        """Return the label of every place: that of the hint's target, or the next number that the messages leave."""
        first = self._first
        if not self._hints:
            return tuple(range(first, first + len(order)))
        fresh = iter(range(first, first + len(order)))
        return tuple([self._hints[p] if p in self._hints else next(fresh) for p in order])

    def replaced_tokens(self, order: tuple[int, ...], places: int) -> int:
        """Return the tokens of the runs that span hints replace in the first ``places``."""
        leading = zip(order[:places], self.segments(order), strict=False)
        runs = [run for position, own in leading if position not in self._hints for run in own]
        return sum([self._count(run.text) for run in runs if run.label is not None])

    def segments(self, order: tuple[int, ...]) -> Segments:
        """Return the runs of every place."""
        if order not in self._cut:
            self._cut[order] = self._segments(order)
        return self._cut[order]

    def section(self, order: tuple[int, ...], around: Sequence[str] = ()) -> Section:
        """Return the documents in one order, rendered; ``around``: as in `render_context`."""
        labels, segments, config = self.labels(order), self.segments(order), self._config
        items = [
            HintItem(label) if position in self._hints else BlockItem(label or 0, run)
            for position, label, run in zip(order, labels, segments, strict=True)
        ]
        context = render_context(
            items,
            hint=config.hint,
            unlabelled_hint=config.unlabelled_hint,
            span_hint=config.span_hint,
            around=around,
        )
        return Section(order, labels, segments, self._hints, context)

    def _segments(self, order: tuple[int, ...]) -> Segments:
        bodies, hints = self._bodies, self._hints
        sent = [(label or 0, p) for label, p in zip(self.labels(order), order, strict=True) if p not in hints]
        marks: list[Marks] = []
        if self._config.dedup and self._config.span_dedup:
            if self._marks is None:
                own = [position for position in self._positions if position not in hints]
                self._marks = dict(zip(own, common_marks([bodies[p] for p in own], self._visible.sources), strict=True))
            marks = [self._marks[position] for _, position in sent]
        runs: Segments = tuple([(Segment(bodies[position]),) for _, position in sent])
        if any(marks):
            runs = split_blocks(
                [(label, bodies[position]) for label, position in sent],
                self._visible.sources,
                span_hint=self._config.span_hint,
                count=self._count,
                unclear=self._visible.unclear,
                marks=marks,
            )
        if not hints:
            return runs
        fresh = iter(runs)
        return tuple([(Segment(bodies[p], hints[p]),) if p in hints else next(fresh) for p in order])


def render_bodies(
    bodies: Sequence[str], config: EngineConfig, count: TokenCounter, visible: Visible = NOTHING
) -> tuple[str, MessageRecord]:
    """Return bodies in the order given as text, and what it shows, where no engine plans.

    What ``visible`` shows becomes a hint, if that is shorter; runs of text likewise.
    """
    digests = [body_digest(body) for body in bodies]
    positions = distinct(digests)[0] if config.dedup else tuple(range(len(bodies)))
    tokens = [max(1, count(body)) for body in bodies]
    visible = _doubting(visible, bodies)
    hints = visible.hints(positions, bodies, digests, tokens, config, count)
    section = Sections(bodies, positions, hints, visible, config, count).section(positions)
    return sendable(section.context.text), section.record(digests)


def render_in_place(
    bodies: Sequence[str], around: Sequence[str], config: EngineConfig, count: TokenCounter, visible: Visible = NOTHING
) -> tuple[Section, MessageRecord]:
    """Return bodies in a text of others, and what it shows; ``around``: what stands before, between and behind them.

    Every body keeps its place. What ``visible`` shows, or stands above, becomes a hint, if that is shorter.
    """
    digests = [body_digest(body) for body in bodies]
    places = tuple(range(len(bodies)))
    tokens = [max(1, count(body)) for body in bodies]
    rest = "\n".join(around)
    visible = _doubting(visible, [*bodies, rest])
    hints = visible.hints(places, bodies, digests, tokens, config, count)
    if config.dedup:
        own: dict[bytes, int] = {}
        fresh = visible.next_label
        for place in places:
            label = own.get(digests[place])
            if place in hints:
                continue
            if label and label not in visible.unclear and _hint_tokens(label, config, count) < tokens[place]:
                hints[place] = label
            else:
                own.setdefault(digests[place], fresh)
                fresh += 1
    section = Sections(bodies, places, hints, visible, config, count).section(places, around)
    section = replace(section, context=replace(section.context, text=sendable(section.context.text)))
    return section, section.record(digests, rest=rest)


def _doubting(visible: Visible, texts: Sequence[str]) -> Visible:
    """Return what is visible beside new texts: labels that they seem to show are not clear any more."""
    found = label_lines(texts)
    return replace(visible, doubtful=visible.doubtful | found) if found else visible


def _hint_tokens(label: int, config: EngineConfig, count: TokenCounter) -> int:
    return count(config.hint.replace("{label}", str(label)))
