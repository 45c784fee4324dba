"""A plan: what to send for one request, and why. Texts are rendered when they are first asked for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from contextpilot_core.config import EngineConfig
from contextpilot_core.plan.choose import Choice
from contextpilot_core.plan.explain import ItemView, PlanView, explain_plan, plan_html
from contextpilot_core.plan.request import Prepared
from contextpilot_core.prompt.layout import (
    BlockItem,
    HintItem,
    RenderedContext,
    build_messages,
    context_message_text,
    render_context,
)
from contextpilot_core.prompt.messages import Seal
from contextpilot_core.prompt.spans import split_blocks
from contextpilot_core.prompt.visible import Visible
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import ContextBlock, ContextRequest, Hint, PlanReport, Segment


@dataclass(frozen=True)
class Rendering:
    """What plans need from their engine: configuration, counter, seal, and whom to tell that a text exists now."""

    config: EngineConfig
    count: TokenCounter
    seal: Seal
    rendered: "Callable[[Plan, str], None]"


@dataclass(eq=False)
class Ticket:
    """The one changing thing about a plan: "in flight", "committed" or "gone"; its ``home`` alone changes it."""

    home: object
    state: str
    deadline: float | None = None
    moment: int | None = None  # what was known of the engine's cache when the plan was made (`KVMirror.moment`)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What to send for one request (docs: "The way of one request").

    ``order`` holds positions in the caller's list: all distinct blocks that take part, hinted ones included, in the
    order of the prompt. ``messages`` is ready for an OpenAI-compatible endpoint, ``text`` is the context alone (with
    the note, when blocks were moved). Both are rendered on first use; from then on the engine recognises the message.
    """

    request_id: str
    _prepared: Prepared = field(repr=False)
    _choice: Choice
    _hints: Mapping[int, int | None]
    _visible: Visible
    _rendering: Rendering
    _ticket: Ticket

    @property
    def request(self) -> ContextRequest:
        """The request as it was given (sequences as tuples)."""
        return self._prepared.request

    @property
    def order(self) -> tuple[int, ...]:
        """Positions in the caller's list, in the order of the prompt."""
        return self._choice.order

    @property
    def dropped(self) -> tuple[int, ...]:
        """Positions whose body stands earlier in the caller's list: sent once."""
        return self._prepared.repeats

    @property
    def unselected(self) -> tuple[int, ...]:
        """Positions that selection left out (empty unless ``budget`` is configured)."""
        return self._choice.unselected

    @property
    def moved(self) -> bool:
        """Whether the order differs from the retrieval order."""
        return self._choice.moved

    @property
    def annotation(self) -> str:
        """The order note, "" when none is needed."""
        return self._choice.note

    @property
    def expected_reused_tokens(self) -> int:
        """Block tokens expected in the prefix cache, in whole KV blocks."""
        return self._choice.expected_tokens

    @property
    def expected_share(self) -> float:
        """Share of the whole prompt that was expected in the prefix cache, 0 to 1, by the engine's counter."""
        choice = self._choice
        text = choice.head_tokens + choice.block_tokens + choice.note_tokens + self._rendering.count(self.request.query)
        return min(1.0, choice.prefix_tokens / text) if text else 0.0

    @cached_property
    def hints(self) -> tuple[Hint, ...]:
        """Blocks that the messages already show, in the order of the prompt."""
        return tuple(Hint(position=p, label=self._hints[p]) for p in self.order if p in self._hints)

    @cached_property
    def blocks(self) -> tuple[ContextBlock, ...]:
        """The caller's blocks in the order of the prompt, hinted ones included."""
        given = self.request.blocks
        return tuple(_as_block(given[position]) for position in self.order)

    @cached_property
    def labels(self) -> tuple[int | None, ...]:
        """The number of ``[Doc n]`` for every place of ``order``; for hints the target's, which may be None."""
        fresh = iter(range(self._visible.next_label, self._visible.next_label + len(self.order)))
        return tuple(self._hints[p] if p in self._hints else next(fresh) for p in self.order)

    @property
    def names_history(self) -> bool:
        """Whether a hint of this plan names what the history shows: without that history it would dangle."""
        own = {label for label, p in zip(self.labels, self.order, strict=True) if p not in self._hints}
        named = {segment.label for run in self.segments for segment in run if segment.label is not None}
        return bool(self._hints) or not named <= own

    @cached_property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        """Per place of ``order``: the runs of the body, literal or replaced by a span hint (hints: one run)."""
        sent = [(label or 0, p) for label, p in zip(self.labels, self.order, strict=True) if p not in self._hints]
        bodies = [(label, self._prepared.bodies[p]) for label, p in sent]
        config = self._rendering.config
        if config.dedup and config.span_dedup:
            split = split_blocks(
                bodies,
                self._visible.sources(),
                span_hint=config.span_hint,
                count=self._rendering.count,
                unclear=self._visible.unclear,
            )
        else:
            split = tuple((Segment(body),) for _, body in bodies)
        fresh = iter(split)
        return tuple(
            (Segment(self._prepared.bodies[p], self._hints[p]),) if p in self._hints else next(fresh)
            for p in self.order
        )

    @cached_property
    def context(self) -> RenderedContext:
        """The rendered blocks and hints, without the note."""
        config = self._rendering.config
        return render_context(
            list(self._items()), hint=config.hint, unlabelled_hint=config.unlabelled_hint, span_hint=config.span_hint
        )

    @cached_property
    def text(self) -> str:
        """The context as one string: blocks, hints and the note."""
        text = context_message_text(self.context.text, self.annotation, "")
        self._rendering.rendered(self, text)
        return text

    @cached_property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The whole prompt: system message, history, and one user message with context, note and question."""
        request = self.request
        messages = build_messages(
            instructions=request.instructions,
            messages=request.messages,
            context=self.context.text,
            note=self.annotation,
            query=request.query,
        )
        if len(messages) > len(self._prepared.history):
            self._rendering.rendered(self, str(messages[-1]["content"]))
        return messages

    @property
    def shared_prefix_end(self) -> tuple[int, int]:
        """(message index, character offset) at which the head expected in the prefix cache ends."""
        cached = self._choice.cached_blocks
        return max(0, len(self.messages) - 1), self.context.ends[cached - 1] if cached else 0

    @cached_property
    def report(self) -> PlanReport:
        """The figures of this plan; nothing is rendered for them but the spans."""
        count = self._rendering.count
        bodies = self._prepared.bodies
        replaced = [
            segment.text
            for position, run in zip(self.order, self.segments, strict=True)
            for segment in run
            if segment.label is not None and position not in self._hints
        ]
        return PlanReport(
            blocks=len(self.order),
            block_tokens=sum(max(1, count(bodies[p])) for p in self.order if p not in self._hints),
            hinted_tokens=sum(max(1, count(bodies[p])) for p in self.order if p in self._hints),
            span_tokens=sum(count(text) for text in replaced),
            note_tokens=self._choice.note_tokens,
            expected_reused_tokens=self.expected_reused_tokens,
            moved=self.moved,
            dropped=len(self.dropped),
            unselected=self.unselected,
            reason=self._choice.reason,
        )

    def expand(self) -> tuple[str, ...]:
        """Return the original bodies in the order of ``order``, byte for byte, from the recorded segments."""
        return tuple("".join(segment.text for segment in run) for run in self.segments)

    def explain(self) -> str:
        """Say in words what moved, what was left out and why."""
        return explain_plan(self._view())

    def _repr_html_(self) -> str:
        return plan_html(self._view())

    def __repr__(self) -> str:
        """Show the figures, never the texts."""
        return (
            f"Plan({self.request_id!r}, order={self.order}, moved={self.moved}, hints={len(self._hints)}, "
            f"dropped={len(self.dropped)}, expected_reused_tokens={self.expected_reused_tokens})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be pickled half: a plan belongs to its engine."""
        raise TypeError(
            "a Plan belongs to its engine and cannot be pickled or deep-copied; pass on plan.messages or plan.text"
        )

    def __copy__(self) -> "Plan":
        """Return the plan itself, as `__deepcopy__`."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Plan":
        """Return the plan itself: it does not change."""
        return self

    def _items(self) -> Iterator[BlockItem | HintItem]:
        for position, label, run in zip(self.order, self.labels, self.segments, strict=True):
            if position in self._hints:
                yield HintItem(label)
            else:
                yield BlockItem(label or 0, run)

    def _view(self) -> PlanView:
        count = self._rendering.count
        cached = self._choice.cached_blocks
        rank = {position: index for index, position in enumerate(self._prepared.positions)}
        items = []
        for place, (position, label, run) in enumerate(zip(self.order, self.labels, self.segments, strict=True)):
            block = self.blocks[place]
            body = self._prepared.bodies[position]
            items.append(
                ItemView(
                    position=position,
                    rank=rank[position],
                    label=label,
                    kind="hint" if position in self._hints else "block",
                    title=block.title or ("" if block.id is None else str(block.id)),
                    text_preview=body[:160],
                    tokens=max(1, count(body)),
                    shared=place < cached,
                    spans_replaced=0 if position in self._hints else sum(s.label is not None for s in run),
                )
            )
        report = self.report
        return PlanView(
            request_id=self.request_id,
            items=tuple(items),
            dropped=self.dropped,
            unselected=self.unselected,
            annotation=self.annotation,
            block_tokens=report.block_tokens,
            expected_reused_tokens=report.expected_reused_tokens,
            note_tokens=report.note_tokens,
            hinted_tokens=report.hinted_tokens,
            reason=report.reason + ("; the history is not counted here" if self._prepared.history else ""),
        )


def _as_block(block: str | ContextBlock) -> ContextBlock:
    return ContextBlock(text=block) if isinstance(block, str) else block


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Plans in input order, and ``schedule``: the input positions in the order in which to send them."""

    plans: tuple[Plan, ...]
    schedule: tuple[int, ...]

    def in_schedule(self) -> Iterator[Plan]:
        """Yield the plans in the order in which to send them."""
        return (self.plans[position] for position in self.schedule)

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)
