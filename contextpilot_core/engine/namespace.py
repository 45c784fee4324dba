"""Everything that one namespace owns: its index, its conversations and its requests in flight."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.view import View
from contextpilot_core.clustering.values import Lead
from contextpilot_core.errors import DuplicateRequestError, IntegrityError
from contextpilot_core.journal.operations import Recorded
from contextpilot_core.mirror.keys import closed, opened
from contextpilot_core.mirror.view import Located, TruthView
from contextpilot_core.plan.choose import Draft, choose, draft, keep
from contextpilot_core.plan.lookup import ContextIndex
from contextpilot_core.plan.plan import Plan, Rendering, Ticket
from contextpilot_core.plan.request import Prepared
from contextpilot_core.prompt.memory import Conversations, SharedRecords
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.prompt.visible import message_record
from contextpilot_core.types import PromptTokens

_MOST_KEYS = 2_048
"""KV blocks of a prompt that other processes are told of; those beyond are unknown there."""


class Namespace:
    """State of one namespace; the engine holds the lock around every call."""

    def __init__(
        self,
        rendering: Rendering,
        clock: Callable[[], float],
        new_view: Callable[[BlockTable], View],
        records: SharedRecords | None,
    ) -> None:
        config = rendering.config
        self._config = config
        self._rendering = rendering
        self._clock = clock
        self.index = ContextIndex(config, new_view)
        self.conversations = Conversations(
            limit=config.max_messages, seconds=config.message_seconds, clock=clock, shared=records
        )
        # In the order of their deadlines: all plans wait equally long.
        self.in_flight: OrderedDict[str, Ticket] = OrderedDict()
        self.reserved: set[str] = set()
        self._tickets: WeakValueDictionary[str, Ticket] = WeakValueDictionary()  # of the plans that somebody holds

    def is_live(self, request_id: str) -> bool:
        """Tell whether an id is taken."""
        return request_id in self.in_flight or request_id in self.reserved or self.index.view.holds(request_id)

    def reserve(self, request_id: str) -> None:
        """Take an id for a request that will be settled soon.

        Raises:
            DuplicateRequestError: the id is live.
        """
        if self.is_live(request_id):
            raise DuplicateRequestError(
                f"request_id={request_id!r} is already live in this namespace, or given twice in this batch; "
                "evict it first, or give another id"
            )
        self.reserved.add(request_id)

    def sketch(self, prepared: Prepared) -> Draft:
        """Find what is visible and what is new; its ids stay known until `drop`."""
        return draft(prepared, self.index, self.conversations, self._config, self._rendering.count)

    def drop(self, sketch: Draft) -> None:
        """Let go of the ids of a sketch."""
        self.index.blocks.release(sketch.pinned)

    def expect(self, prepared: Prepared) -> int:
        """Return the tokens that a request would find in the prefix cache."""
        sketch = self.sketch(prepared)
        try:
            return choose(sketch, self.index, self._config, self._rendering.count).expected_tokens
        finally:
            self.drop(sketch)

    def settle(
        self,
        request_id: str,
        sketch: Draft,
        *,
        commit: bool,
        lead: Lead | None = None,
        order: tuple[int, ...] | None = None,
    ) -> Plan:
        """Decide and let the request take its place: visible to later plans, confirmed at once with ``commit``.

        With ``order`` the decision has been made elsewhere.
        """
        if order is None:
            choice = choose(sketch, self.index, self._config, self._rendering.count, lead)
        else:
            choice = keep(sketch, self.index, self._config, self._rendering.count, order)
        self.index.insert(request_id, sketch.head, choice.context)
        self.reserved.discard(request_id)
        if commit:
            ticket = Ticket(self, "committed")
            self.conversations.adopt(sketch.visible.known, request_id)
        else:
            ticket = Ticket(self, "in flight", self._clock() + self._config.in_flight_seconds)
            self.in_flight[request_id] = ticket
        self._tickets[request_id] = ticket
        return Plan(request_id, sketch.prepared, choice, sketch.hints, sketch.visible, self._rendering, ticket)

    def confirm(self, plan: Plan) -> bool:
        """Commit a plan in flight; True also when it was committed before, False when it is gone.

        Only now does it hold the records of its history: a plan that is taken back must leave them to their owners.
        """
        ticket = plan._ticket
        if ticket.state == "in flight":
            ticket.state = "committed"
            del self.in_flight[plan.request_id]
            self.conversations.adopt(plan._visible.known, plan.request_id)
        return ticket.state == "committed"

    def take_back(self, request_id: str, ticket: Ticket) -> bool:
        """Remove a plan in flight as if it had never been made; False when it is not in flight."""
        if ticket.state != "in flight":
            return False
        ticket.state = "gone"
        del self.in_flight[request_id]
        self.index.evict(request_id)
        self.conversations.release(request_id)
        return True

    def expire(self) -> int:
        """Take back the plans whose time is over: how many."""
        now, expired = self._clock(), 0
        while self.in_flight:
            request_id, ticket = next(iter(self.in_flight.items()))
            if ticket.deadline is None or ticket.deadline > now:
                break
            self.take_back(request_id, ticket)
            expired += 1
        return expired

    def evict(self, request_id: str) -> int | None:
        """Release a request and its messages: the freed tokens, or None for an unknown id."""
        waiting = self.in_flight.pop(request_id, None)
        ticket = self._tickets.pop(request_id, None)
        if ticket is not None:
            ticket.state = "gone"
        freed = self.index.evict(request_id)
        had_messages = self.conversations.release(request_id)
        if freed is None and not had_messages and waiting is None:
            return None
        return freed or 0

    def remember(self, plan: Plan, text: str) -> None:
        """Record that ``text`` starts with the context of ``plan``, unless the plan is gone."""
        if plan._ticket.state == "gone" or not plan.order:
            return
        bodies, digests = plan._prepared.bodies, plan._prepared.digests
        sent = [
            (digests[position], label, run)
            for position, label, run in zip(plan.order, plan.labels, plan.segments, strict=True)
            if label is not None and position not in plan._hints
        ]
        path = tuple(
            (digests[position], max(1, plan._rendering.count(bodies[position])))
            for position, _ in zip(plan.order, plan._choice.context, strict=False)
        )
        rest = text[len(plan.context.text) :]
        record = message_record(sent, [hint.label for hint in plan.hints], plan.context, rest, path)
        self.conversations.record(self._rendering.seal(body_digest(text)), record, plan.request_id)

    @property
    def on_events(self) -> bool:
        """Whether plans rely on what the engine's events tell."""
        return isinstance(self.index.view, TruthView) and self.index.view.on_truth

    def record(self, plan: Plan, keys: Sequence[bytes], tokens: PromptTokens, block_size: int) -> Located | None:
        """Tell the view which KV blocks hold the prompt of ``plan``; None when it does not follow them, or no more."""
        view = self.index.view
        if not isinstance(view, TruthView) or plan._ticket.state == "gone":
            return None
        counts = [None if end is None else end // block_size for end in (tokens.start, *tokens.ends)]
        return view.record(plan.request_id, len(plan._choice.context), tuple(keys), counts)

    def news(self, plan: Plan, located: Located) -> Recorded | None:
        """Return what other processes may learn of a prompt that was just recorded, if anything."""
        ends = tuple(end if end is not None and end <= _MOST_KEYS else None for end in located.ends)
        keys = located.keys[: max(filter(None, ends), default=0)]
        if not keys:
            return None
        path, sealed = self.index.blocks.describe(located.path), closed(keys, self._rendering.seal)
        return Recorded(plan.request.namespace, plan.request_id, path, sealed, ends)

    def learn(self, recorded: Recorded) -> None:
        """Let the view learn the KV blocks of a prompt that another process sent, if it follows them."""
        view, blocks = self.index.view, self.index.blocks
        if isinstance(view, TruthView):
            path = tuple(blocks.intern_path(recorded.path))
            view.learn(recorded.request_id, Located(path, opened(recorded.keys, self._rendering.seal), recorded.ends))
            blocks.release(path)

    def close(self) -> None:
        """Mark every plan in flight as gone (before the namespace is forgotten)."""
        for ticket in self.in_flight.values():
            ticket.state = "gone"
        self.in_flight.clear()

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless index, conversations and tickets are sound."""
        self.index.check_integrity()
        self.conversations.check_integrity()
        if any(ticket.state != "in flight" for ticket in self.in_flight.values()):
            raise IntegrityError("a plan is listed as in flight but is not")
