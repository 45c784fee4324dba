"""The namespaces of one engine behind one lock: where requests are opened, settled and found again."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.view import View
from contextpilot_core.clustering.values import Lead
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.counters import Counters
from contextpilot_core.engine.namespace import Namespace
from contextpilot_core.errors import RequestTypeError
from contextpilot_core.journal.operations import Recorded, Reset
from contextpilot_core.journal.state import Journal, SharedState
from contextpilot_core.mirror.reports import CacheReports
from contextpilot_core.plan.choose import Draft
from contextpilot_core.plan.plan import Plan, Rendering
from contextpilot_core.plan.request import Prepared
from contextpilot_core.prompt.messages import plain
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import EngineStats, Observation, Served

NewView = Callable[[str, BlockTable], View]
"""Makes the view of a namespace over its interned blocks."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A request with a reserved id and a sketch: it has to be settled or dropped."""

    space: Namespace
    name: str
    sketch: Draft


class Registry:
    """Owns the namespaces, the counters and the ids that requests get; every method takes the lock itself."""

    def __init__(
        self,
        config: EngineConfig,
        count: TokenCounter,
        clock: Callable[[], float],
        new_view: NewView,
        reports: CacheReports,
        journal: Journal | None,
    ) -> None:
        self.lock = threading.RLock()
        self.shared = None if journal is None else SharedState(config, journal, self.lock, self)
        self.seal = plain if journal is None else journal.seal
        self._prefix = "" if self.shared is None else f"{self.shared.worker}-"
        self._rendering = Rendering(config, count, self.seal, self._rendered)
        self._clock = clock
        self._new_view = new_view
        self._reports = reports
        self._spaces: dict[str, Namespace] = {}
        self._counters = Counters()
        self._next_id = 0

    def open(self, prepared: Prepared) -> Opened:
        """Reserve the request's id and sketch it.

        Raises:
            DuplicateRequestError: the id is live; nothing was changed.
        """
        with self.lock:
            space = self._space(prepared.request.namespace)
            name = self._reserve(space, prepared.request.request_id)
            try:
                return Opened(space, name, space.sketch(prepared))
            except BaseException:
                space.reserved.discard(name)
                raise

    def settle(
        self, opened: Opened, *, commit: bool, lead: Lead | None = None, order: tuple[int, ...] | None = None
    ) -> Plan:
        """Decide, and let the request take its place; its sketch is dropped either way."""
        sketch = opened.sketch
        with self.lock:
            try:
                plan = opened.space.settle(opened.name, sketch, commit=commit, lead=lead, order=order)
                plan._ticket.moment = self._reports.moment
                self._counters.add(plan, sketch.hinted_tokens, committed=commit)
                return plan
            except BaseException:
                opened.space.index.leave_tree(opened.name)
                raise
            finally:
                self.drop((opened,))

    def expect(self, prepared: Prepared) -> int:
        """Return the tokens that a plan would find in the prefix cache; none is made."""
        with self.lock:
            space = self._known(prepared.request.namespace)
            return 0 if space is None else space.expect(prepared)

    def drop(self, batch: Iterable[Opened]) -> None:
        """Let go of sketches and reserved ids."""
        with self.lock:
            for opened in batch:
                opened.space.drop(opened.sketch)
                opened.space.reserved.discard(opened.name)

    def cancel(self, batch: Iterable[Opened]) -> None:
        """Drop requests of a batch that broke off, and take them out of the tree that was clustered for it."""
        with self.lock:
            for opened in batch:
                opened.space.index.leave_tree(opened.name)
                self.drop((opened,))

    def commit(self, plan: Plan) -> bool:
        """Confirm a plan in flight."""
        with self.lock:
            space = self._home(plan)
            if space is None:
                return False
            waiting = plan.request_id in space.in_flight
            done = space.confirm(plan)
            self._counters.committed += done and waiting
            return done

    def observe(self, plan: Plan, served: Served) -> Observation:
        """Compare a response with its prediction, and let the view learn the prompt's KV blocks."""
        with self.lock:
            space = self._home(plan)
            observation = self._reports.observe(plan._ticket.moment, plan.expected_share, served)
            self._counters.observed(observation, served.prompt_tokens)
            if space is not None and served.tokens is not None:
                located = space.record(plan, self._reports.keys(served), served.tokens, self._reports.block_size)
                if self.shared is not None and located is not None:
                    self.shared.tell(space.news(plan, located))
            return observation

    def abandon(self, plan: Plan) -> bool:
        """Take back a plan in flight."""
        with self.lock:
            space = self._home(plan)
            done = space is not None and space.take_back(plan.request_id, plan._ticket)
            self._counters.abandoned += done
            return done

    def evict(self, request_ids: Sequence[str], namespace: str) -> dict[str, int | None]:
        """Release requests: freed tokens by id, None for an unknown one."""
        with self.lock:
            space = self._known(namespace)
            return {name: None if space is None else space.evict(name) for name in request_ids}

    def reset(self, namespace: str | None) -> None:
        """Forget one namespace, or everything."""
        with self.lock:
            self.forgotten(namespace)
            if namespace is None:
                self._counters = Counters()
                self._next_id = 0
            if self.shared is not None:
                self.shared.record(Reset(namespace))

    def stats(self) -> EngineStats:
        """Return counters and sizes over all namespaces."""
        with self.lock:
            replicas = {} if self.shared is None else self.shared.replicas
            shared = replicas.values()
            spaces = [self._space(name) for name in dict.fromkeys([*self._spaces, *replicas])]
            totals = asdict(self._counters)
            totals["evictions"] += sum(space.index.evictions for space in spaces)
            return EngineStats(
                **totals,
                drift=self._reports.drift,
                source="events" if any(space.on_events for space in spaces) else "estimate",
                in_flight=sum(len(space.in_flight) for space in spaces),
                live_requests=sum(len(space.index.view) for space in spaces),
                cached_tokens=sum(space.index.view.tokens for space in spaces),
                known_blocks=sum(map(len, chain((s.index.blocks for s in spaces), (r.blocks for r in shared)))),
                known_messages=sum(map(len, chain((s.conversations for s in spaces), (r.records for r in shared)))),
                namespaces=len(spaces),
            )

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless all state is sound."""
        with self.lock:
            for space in self._spaces.values():
                space.check_integrity()
            if self.shared is not None:
                self.shared.check_integrity()

    # -- what happened in other processes (`shared.Followers`) ---------------------------------------------------

    def cut(self, namespace: str, request_ids: Sequence[str]) -> None:
        """Follow the shared view: the last blocks of requests left it."""
        if namespace in self._spaces:
            self._spaces[namespace].index.cut(request_ids)

    def released(self, namespace: str, request_id: str) -> None:
        """Follow another process, which released a request; one of the same id may have come here since."""
        space = self._spaces.get(namespace)
        if space is not None and not space.index.view.holds(request_id):
            space.evict(request_id)

    def recorded(self, recorded: Recorded) -> None:
        """Follow another process, which learnt the KV blocks of a request."""
        if self._reports.follows_events:
            self._space(recorded.namespace).learn(recorded)

    def forgotten(self, namespace: str | None) -> None:
        """Forget one namespace, or all; what it counted stays."""
        for name in list(self._spaces) if namespace is None else [namespace]:
            space = self._spaces.pop(name, None)
            if space is not None:
                space.close()
                self._counters.evictions += space.index.evictions

    def replaced(self) -> None:
        """Follow a shared view that is another one now."""
        for space in self._spaces.values():
            space.index.leave_trees()

    # ------------------------------------------------------------------------------------------------------------

    def _known(self, namespace: str) -> Namespace | None:
        """Return a namespace that was used here or in another process, else None."""
        elsewhere = self.shared is not None and namespace in self.shared.replicas
        return self._space(namespace) if elsewhere or namespace in self._spaces else None

    def _space(self, namespace: str) -> Namespace:
        space = self._spaces.get(namespace)
        if space is None:
            rendering = replace(self._rendering, config=self._rendering.config.of(namespace))
            records = None if self.shared is None else self.shared.records(namespace)
            new_view = partial(self._new_view, namespace)
            space = self._spaces[namespace] = Namespace(rendering, self._clock, new_view, records)
        self._counters.expired += space.expire()
        return space

    def _home(self, plan: Plan) -> Namespace | None:
        """Return the namespace that made ``plan``, or None when it is another engine's or was reset since."""
        if not isinstance(plan, Plan):
            raise RequestTypeError(f"expected a Plan, got {type(plan).__name__}; give what plan() returned")
        space = self._spaces.get(plan.request.namespace)
        if space is None or plan._ticket.home is not space:
            return None
        self._counters.expired += space.expire()
        return space

    def _reserve(self, space: Namespace, request_id: str | None) -> str:
        while request_id is None:
            self._next_id += 1
            name = f"{self._prefix}r{self._next_id}"
            request_id = None if space.is_live(name) else name
        space.reserve(request_id)
        return request_id

    def _rendered(self, plan: Plan, text: str) -> None:
        with self.lock:
            space = self._home(plan)
            if space is not None:
                space.remember(plan, text)
