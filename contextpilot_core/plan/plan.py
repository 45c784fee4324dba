"""A plan: what to send for one request, and why. Reading it changes nothing; texts are rendered on first use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from contextpilot_core.plan.explain import ItemView, PlanView, explain_plan, plan_html
from contextpilot_core.plan.request import Job
from contextpilot_core.prompt import (
    Given,
    MessageRecord,
    RenderedContext,
    Section,
    context_message_text,
    read_documents,
    sendable,
    shown_documents,
    sources_of,
)
from contextpilot_core.types import (
    ContextBlock,
    ContextRequest,
    Hint,
    OnePerProcess,
    PlanReport,
    Segment,
    Source,
    cached_property,
)


@dataclass(frozen=True, eq=False, repr=False)
class Plan(OnePerProcess):
    """What to send for one request (docs: "The way of one request").

    ``order`` holds positions in the caller's list: all distinct blocks that take part, hinted ones included, in the
    order of the prompt. ``messages`` is ready for an OpenAI-compatible endpoint, ``text`` is the context alone (with
    the note, when blocks were moved); in both, half a character (a surrogate) is U+FFFD. Unless its request says
    ``remember=False``, the engine recognises the message that `messages` ends with.
    """

    _job: Job

    @property
    def request_id(self) -> str:
        """The request's name in its namespace: the caller's, or a generated one."""
        return self._job.request_id

    @property
    def request(self) -> ContextRequest:
        """The request as it was given (sequences as tuples)."""
        return self._job.request

    @property
    def order(self) -> tuple[int, ...]:
        """Positions in the caller's list, in the order of the prompt."""
        return self._job.order

    @property
    def dropped(self) -> tuple[int, ...]:
        """Positions whose body stands earlier in the caller's list: sent once."""
        return self._job.repeats

    @property
    def unselected(self) -> tuple[int, ...]:
        """Positions that selection left out (empty unless ``budget`` is configured)."""
        sent = set(self.order)
        return tuple([position for position in self._job.positions if position not in sent])

    @property
    def moved(self) -> bool:
        """Whether the order differs from the retrieval order."""
        return self._job.moved

    @property
    def annotation(self) -> str:
        """The order note, "" when none is needed."""
        return self._job.note

    @property
    def expected_reused_tokens(self) -> int:
        """Block tokens expected in the prefix cache, in whole KV blocks."""
        return self._job.expected_tokens

    @property
    def expected_share(self) -> float:
        """Share of the whole prompt that was expected in the prefix cache, 0 to 1, by the engine's counter."""
        job = self._job
        text = job.head_tokens + job.block_tokens + job.note_tokens + job.query_tokens
        return min(1.0, job.prefix_tokens / text) if text else 0.0

    @property
    def moment(self) -> int | None:
        """What was known of the server's cache when the plan was made (`KVMirror.moment`); None: nothing sure."""
        return self._job.moment

    @cached_property
    def hints(self) -> tuple[Hint, ...]:
        """Blocks that the messages already show, in the order of the prompt."""
        known = self._job.hints
        return tuple([Hint(position=position, label=known[position]) for position in self.order if position in known])

    @cached_property
    def blocks(self) -> tuple[ContextBlock, ...]:
        """The caller's blocks in the order of the prompt, hinted ones included."""
        given = self.request.blocks
        return tuple([_as_block(given[position]) for position in self.order])

    @cached_property
    def labels(self) -> tuple[int | None, ...]:
        """The number of ``[Doc n]`` for every place of ``order``; for hints the target's, which may be None."""
        return self._job.sections.labels(self.order)

    @property
    def labels_given(self) -> tuple[int | None, ...]:
        """The number of ``[Doc n]`` for every block of the caller's list, repeats included; None where it has none."""
        digests = self._job.digests
        shown = {digests[position]: label for position, label in zip(self.order, self.labels, strict=True)}
        return tuple([shown.get(digest) for digest in digests])

    @property
    def own_labels(self) -> tuple[int, ...]:
        """The labels of the blocks that this plan sends in full."""
        places = zip(self.order, self.labels, strict=True)
        return tuple([label for position, label in places if label is not None and position not in self._job.hints])

    @property
    def given(self) -> Given:
        """What the message that this plan adds was rendered from."""
        job = self._job
        return Given(job.order, self.labels, job.digests, job.request.blocks)

    @cached_property
    def sources(self) -> Mapping[int, Source]:
        """What every ``[Doc n]`` of the prompt stands for, of this turn and of all earlier ones that it shows.

        Give them to `citations` with an answer. A label that messages use for several texts is left out.
        """
        visible = self._job.visible
        earlier = zip(visible.shown, visible.given, strict=True)
        read = [read_documents(*shown) if given is None else shown_documents(given) for shown, given in earlier]
        return MappingProxyType(sources_of([*read, shown_documents(self.given)]))

    @property
    def names_history(self) -> bool:
        """Whether a hint of this plan names what the history shows: without that history it would dangle."""
        named = {segment.label for run in self.segments for segment in run if segment.label is not None}
        return bool(self._job.hints) or not named <= set(self.own_labels)

    @property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        """Per place of ``order``: the runs of the body, literal or replaced by a span hint (hints: one run)."""
        return self._job.sections.segments(self.order)

    @cached_property
    def section(self) -> Section:
        """The blocks and hints as they stand in the prompt."""
        return self._job.sections.section(self.order)

    @property
    def context(self) -> RenderedContext:
        """The rendered blocks and hints, without the note."""
        return self.section.context

    @cached_property
    def text(self) -> str:
        """The context as one string: blocks, hints and the note."""
        return sendable(context_message_text(self.context.text, self.annotation, ""))

    @cached_property
    def message_text(self) -> str:
        """The text of the user message that this plan adds: context, note and question; "" when there is none."""
        return sendable(context_message_text(self.context.text, self.annotation, self.request.query))

    @property
    def messages(self) -> tuple[Any, ...]:
        """The whole prompt: system message, history, and one user message with context, note and question.

        Mappings in OpenAI form. Their type is left open, so that `list(plan.messages)` fits what a client expects.
        """
        new = [{"role": "user", "content": self.message_text}] if self.message_text else []
        return (*[dict(entry.message) for entry in self._job.history], *new)

    @property
    def recognised(self) -> tuple[bool, ...]:
        """For every message of the request, whether the engine knows it as one that it rendered."""
        known = [isinstance(record, MessageRecord) for _, record in self._job.visible.known]
        return tuple(known[len(known) - len(self.request.messages) :])

    @property
    def shown(self) -> tuple[str, MessageRecord] | None:
        """The text of the message that `messages` ends with, and what it shows; None for nothing to remember."""
        if not self.request.remember or not self.order:
            return None
        return self.message_text, self.section.record(self._job.digests, self._job.path)

    @property
    def shared_prefix_end(self) -> tuple[int, int]:
        """(message index, character offset) at which the head expected in the prefix cache ends."""
        cached = self._job.cached_blocks
        return max(0, len(self._job.history) - (not self.message_text)), self.context.ends[cached - 1] if cached else 0

    @cached_property
    def report(self) -> PlanReport:
        """The figures of this plan; nothing is rendered for them but the spans."""
        job = self._job
        return PlanReport(
            blocks=len(self.order),
            block_tokens=job.block_tokens,
            hinted_tokens=sum([job.tokens[position] for position in self.order if position in job.hints]),
            span_tokens=job.sections.replaced_tokens(self.order, len(self.order)),
            note_tokens=job.note_tokens,
            expected_reused_tokens=self.expected_reused_tokens,
            moved=self.moved,
            dropped=len(self.dropped),
            unselected=self.unselected,
            reason=job.reason,
        )

    def belongs_to(self, job: Job) -> bool:
        """Tell whether this is the plan that an engine made of ``job``."""
        return self._job is job

    def expand(self) -> tuple[str, ...]:
        """Return the original bodies in the order of ``order``, byte for byte, from the recorded segments."""
        return tuple(["".join([segment.text for segment in run]) for run in self.segments])

    def explain(self) -> str:
        """Say in words what moved, what was left out and why."""
        return explain_plan(self._view())

    def _repr_html_(self) -> str:
        return plan_html(self._view())

    def __repr__(self) -> str:
        """Show the figures, never the texts."""
        return (
            f"Plan({self.request_id!r}, order={self.order}, moved={self.moved}, hints={len(self._job.hints)}, "
            f"dropped={len(self.dropped)}, expected_reused_tokens={self.expected_reused_tokens})"
        )

    def __reduce__(self) -> str:
        """Refuse to be pickled: a plan belongs to its engine."""
        raise TypeError("a Plan belongs to its engine and cannot be pickled; pass on plan.messages or plan.text")

    def _view(self) -> PlanView:
        job, report = self._job, self.report
        items = []
        for place, (position, label, run) in enumerate(zip(self.order, self.labels, self.segments, strict=True)):
            block, hinted = self.blocks[place], position in job.hints
            items.append(
                ItemView(
                    position=position,
                    label=label,
                    kind="hint" if hinted else "block",
                    title=block.title or _name(block),
                    text_preview=job.bodies[position][:160],
                    tokens=job.tokens[position],
                    shared=place < job.cached_blocks,
                    spans_replaced=0 if hinted else sum(segment.label is not None for segment in run),
                )
            )
        return PlanView(
            request_id=self.request_id,
            items=tuple(items),
            dropped=self.dropped,
            annotation=self.annotation,
            report=report,
            reason=report.reason + ("; the history is not counted here" if job.history else ""),
        )


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


def _name(block: ContextBlock) -> str:
    try:
        return "" if block.id is None else str(block.id)
    except Exception:  # noqa: BLE001  # an id may be anything, and need not have a text
        return f"<{type(block.id).__name__}>"


def _as_block(block: str | ContextBlock) -> ContextBlock:
    return ContextBlock(text=block) if isinstance(block, str) else block
