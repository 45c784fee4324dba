"""Everything that one namespace owns: its index, its conversations and its requests in flight."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from weakref import WeakValueDictionary

from contextpilot_core.cache import BlockTable, Located, View
from contextpilot_core.checks import shown
from contextpilot_core.clustering import Lead
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.counters import Counters
from contextpilot_core.errors import DuplicateRequestError, IntegrityError
from contextpilot_core.journal import Recorded
from contextpilot_core.mirror import CacheReports, closed, opened
from contextpilot_core.plan import ContextIndex, Job, Order, Plan, choose, keep, let_go, look_up
from contextpilot_core.prompt import Conversations, MessageRecord, Seal, SharedRecords
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import PromptTokens

_MOST_KEYS = 2_048
"""KV blocks of a prompt that other processes are told of; those beyond are unknown there."""


class Namespace:
    """State of one namespace.

    `open`, `settle` and `expect` take the engine's ``lock`` themselves, for what they ask and change: between that they
    read texts and call what the caller gave, which may take long, raise, or call the engine. Around all else the
    engine holds it.
    """

    def __init__(
        self,
        config: EngineConfig,
        count: TokenCounter,
        seal: Seal,
        clock: Callable[[], float],
        blocks: BlockTable,
        view: View,
        records: SharedRecords | None,
        reports: CacheReports,
        lock: AbstractContextManager[object],
    ) -> None:
        self._config, self._count, self._seal, self._clock, self._lock = config, count, seal, clock, lock
        self.index = ContextIndex(config, blocks, view, lock)
        self.conversations = Conversations(
            limit=config.max_messages, seconds=config.message_seconds, clock=clock, shared=records, lock=lock
        )
        # In the order of their deadlines: all plans wait equally long.
        self.in_flight: OrderedDict[str, Job] = OrderedDict()
        self._waiting = 0  # bytes that the requests in flight keep, about
        self._room = config.share(1)
        self.reports, self.counters = reports, Counters()
        self._opened: dict[str, Job] = {}
        self._forgotten = False
        self._jobs: WeakValueDictionary[str, Job] = WeakValueDictionary()  # of the plans that somebody holds

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being planned here, or in flight."""
        return not self._opened and not self.in_flight

    def bound(self, room: int) -> None:
        """Take at most ``room`` bytes, about: three quarters for messages, a quarter for plans in flight."""
        self._room = room
        self.conversations.bound(room - room // 4)
        self._fit()

    def _fit(self) -> None:
        """Take back the oldest plans in flight beyond the room, as if their time were over; the latest stays."""
        while self._waiting > self._room // 4 and len(self.in_flight) > 1:
            self.abandon(next(iter(self.in_flight.values())))
            self.counters.expired += 1

    @property
    def totals(self) -> Counters:
        """What was counted here, evictions included."""
        return self.counters + Counters(evictions=self.index.evictions)

    def _is_live(self, request_id: str) -> bool:
        """Tell whether an id is taken."""
        return request_id in self.in_flight or request_id in self._opened or self.index.view.holds(request_id)

    def job_of(self, plan: Plan) -> Job | None:
        """Return the job of a plan that was made here and not taken back or evicted since, else None."""
        self.expire()
        job = self._jobs.get(plan.request_id)
        return job if job is not None and plan.belongs_to(job) else None

    def open(self, job: Job, ids: Iterator[str]) -> None:
        """Take the request's id, or else the next of ``ids``, and look it up; it has to be settled or `close`d.

        Raises:
            DuplicateRequestError: the id is live.
        """
        with self._lock:
            self.expire()
            self._refuse_live(job.request.request_id)
        look_up(job, self.index, self.conversations, self._config, self._count)
        with self._lock:
            try:
                self._refuse_live(job.request.request_id)  # by now it may be
            except DuplicateRequestError:
                let_go(job, self.index)
                raise
            request_id = job.request.request_id or next(name for name in ids if not self._is_live(name))
            self._opened[request_id] = job
            job.request_id, job.home = request_id, self

    def _refuse_live(self, request_id: str | None) -> None:
        if request_id is not None and self._is_live(request_id):
            raise DuplicateRequestError(
                f"request_id={shown(request_id)} is already live in this namespace, or given twice in this batch; "
                "evict it first, or give another id"
            )

    def close(self, job: Job) -> None:
        """Let go of what `open` took, and of its place in a tree that was clustered for it; again is harmless."""
        if self._opened.get(job.request_id) is not job:
            return
        del self._opened[job.request_id]
        if job.state == "open":
            self.index.leave(job.request_id)
        let_go(job, self.index)

    def expect(self, job: Job) -> int:
        """Return the tokens that a request would find in the prefix cache."""
        with self._lock:
            self.expire()
        look_up(job, self.index, self.conversations, self._config, self._count)
        try:
            choose(job, self.index, self._config, self._count)
            return job.expected_tokens
        finally:
            with self._lock:
                let_go(job, self.index)

    def settle(self, job: Job, *, commit: bool, lead: Lead | None = None, order: Order | None = None) -> Plan:
        """Decide and let the request take its place: visible to later plans, confirmed at once with ``commit``.

        With ``order`` the decision has been made elsewhere. What `open` took is let go either way.
        """
        try:
            if order is None:
                choose(job, self.index, self._config, self._count, lead)
            else:
                keep(job, self.index, self._config, self._count, order)
            if job.request.remember:
                job.sections.segments(job.order)  # asks the counter: from here on nothing of the caller's can raise
            with self._lock:
                self._take_place(job)
                if commit:
                    self.commit(job)
                self._fit()
                self.close(job)
        except BaseException:
            with self._lock:
                self.close(job)
            raise
        return Plan(job)

    def _take_place(self, job: Job) -> None:
        """Put a decided request into the view; where the namespace was reset meanwhile, it is gone like the others."""
        if self._forgotten:
            job.state = "gone"
            return
        job.deadline = self._clock() + self._config.in_flight_seconds
        self.index.insert(job.request_id, job.head, job.context)
        job.path = self.index.blocks.describe(job.context)
        job.state = "in flight"
        self.in_flight[job.request_id] = self._jobs[job.request_id] = job
        self._waiting += job.size

    def commit(self, job: Job) -> bool:
        """Confirm a request in flight; False when it is not.

        Only now does it hold the records of its history: a plan that is abandoned must leave them to their owners.
        """
        if job.state != "in flight":
            return False
        job.state = "committed"
        del self.in_flight[job.request_id]
        self._waiting -= job.size
        self.conversations.adopt(job.visible.known, job.request_id)
        return True

    def abandon(self, job: Job) -> bool:
        """Remove a request in flight as if it had never been made; False when it is not in flight."""
        if job.state != "in flight":
            return False
        self.evict(job.request_id)
        return True

    def expire(self) -> None:
        """Abandon the requests whose time is over."""
        now = self._clock()
        while self.in_flight:
            job = next(iter(self.in_flight.values()))
            if job.deadline > now:
                break
            self.abandon(job)
            self.counters.expired += 1

    def evict(self, request_id: str) -> int | None:
        """Release a request and its messages: the freed tokens, or None for an unknown id."""
        waiting = self.in_flight.pop(request_id, None)
        if waiting is not None:
            self._waiting -= waiting.size
        job = self._jobs.pop(request_id, None)
        if job is not None:
            job.state = "gone"
        freed = self.index.evict(request_id)
        had_messages = self.conversations.release(request_id)
        if freed is None and not had_messages and waiting is None:
            return None
        return freed or 0

    def remember(self, plan: Plan, key: bytes, record: MessageRecord) -> None:
        """Know the message of a plan by its sealed digest, unless the plan is gone."""
        job = self.job_of(plan)
        if job is not None:
            self.conversations.record(key, record, job.request_id, plan.given)

    def observe(self, job: Job, keys: Sequence[bytes], tokens: PromptTokens, block_size: int) -> Recorded | None:
        """Tell the view which KV blocks hold a prompt: what other processes may learn of that, if anything."""
        counts = [None if end is None else end // block_size for end in (tokens.start, *tokens.ends)]
        located = self.index.view.record(job.request_id, len(job.context), tuple(keys), counts)
        if located is None:
            return None
        ends = tuple([end if end is not None and end <= _MOST_KEYS else None for end in located.ends])
        known = located.keys[: max(filter(None, ends), default=0)]
        if not known:
            return None
        path, sealed = self.index.blocks.describe(located.path), closed(known, self._seal)
        return Recorded(job.request.namespace, job.request_id, path, sealed, ends)

    def learn(self, recorded: Recorded) -> None:
        """Let the view learn the KV blocks of a prompt that another process sent."""
        path = tuple(self.index.blocks.intern_path(recorded.path))
        located = Located(path, opened(recorded.keys, self._seal), recorded.ends)
        self.index.view.learn(recorded.request_id, located)
        self.index.blocks.release(path)

    def forget(self) -> None:
        """Mark every request in flight as gone (before the namespace is forgotten)."""
        self._forgotten = True
        for job in self.in_flight.values():
            job.state = "gone"
        self.in_flight.clear()
        self._waiting = 0

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless index, conversations and jobs are sound."""
        self.index.check_integrity()
        self.conversations.check_integrity()
        if any(job.state != "in flight" for job in self.in_flight.values()):
            raise IntegrityError("a plan is listed as in flight but is not")
        if self._waiting != sum(job.size for job in self.in_flight.values()):
            raise IntegrityError(f"{self._waiting} bytes are counted for {len(self.in_flight)} plans in flight")
