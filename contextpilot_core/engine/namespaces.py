"""The namespaces of one engine behind one lock: where requests are opened, settled and found again."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from itertools import count as numbers

from contextpilot_core.cache import BlockTable, CacheView, Path, View, Wanted
from contextpilot_core.clustering import Arranged, ContextTree, Lead
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.clock import Clock
from contextpilot_core.engine.counters import Counters
from contextpilot_core.engine.namespace import Namespace
from contextpilot_core.errors import RequestTypeError
from contextpilot_core.journal import Journal, Recorded, Reset, SharedState
from contextpilot_core.mirror import CacheReports, ProcessLock
from contextpilot_core.plan import Job, Order, Plan
from contextpilot_core.prompt import MessageRecord, plain
from contextpilot_core.tokens import TokenCounter
from contextpilot_core.types import EngineStats, Observation, Served


class Namespaces:
    """Owns the lock, the namespaces, the counters and the ids that requests get; every method takes the lock itself.

    It is held for questions and changes only: texts are read, and a caller's functions called, without it.
    With a journal the lock also guards the shared state, which is asked by this and by the journal's thread.
    """

    def __init__(
        self,
        config: EngineConfig,
        count: TokenCounter,
        clock: Clock,
        reports: CacheReports,
        journal: Journal | None,
    ) -> None:
        self._lock = ProcessLock(self._forked)
        self._config, self._count, self.clock, self._reports = config, count, clock, reports
        self.shared = None if journal is None else SharedState(config, journal, self._lock, self)
        self.seal = plain if journal is None else journal.seal
        self._known: OrderedDict[str, Namespace] = OrderedDict()  # the one that was used last is the last
        self._share = config.share(1)  # bytes of each namespace
        self._gone = Counters()  # of namespaces that were forgotten
        self._ids: dict[str, Iterator[str]] = {}  # by namespace: how many others have planned is not to be seen

    # -- planning --------------------------------------------------------------------------------------------------

    def plan(self, job: Job, *, commit: bool, order: Order | None = None) -> Plan:
        """Plan one request: opened and settled in one go. Raises as `open`."""
        self.open(job)
        plan = self.settle(job, commit=commit, order=order)
        self.count([job])
        return plan

    def open(self, job: Job) -> None:
        """Take the request's id, or a new one, and look it up; it has to be settled or `cancel`led.

        Raises:
            DuplicateRequestError: the id is live; nothing was changed.
        """
        with self._lock:
            name = job.request.namespace
            namespace, ids = self._namespace(name), self._ids.setdefault(name, self._new_ids())
        namespace.open(job, ids)

    def settle(self, job: Job, *, commit: bool, lead: Lead | None = None, order: Order | None = None) -> Plan:
        """Decide, and let the request take its place; what `open` took is let go either way. It has to be `count`ed."""
        job.moment = self._reports.moment
        plan: Plan = job.home.settle(job, commit=commit, lead=lead, order=order)
        return plan

    def count(self, jobs: Iterable[Job]) -> None:
        """Count requests that were settled, in the totals of `stats`."""
        with self._lock:
            for job in jobs:
                there = self._known.get(job.request.namespace) is job.home
                (job.home.counters if there else self._gone).add(job)

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Let go of requests that were opened and will not be settled."""
        with self._lock:
            for job in jobs:
                job.home.close(job)

    def expect(self, job: Job) -> int:
        """Return the tokens that a plan would find in the prefix cache; none is made."""
        with self._lock:
            namespace = self._find(job.request.namespace)
        return 0 if namespace is None else namespace.expect(job)

    # -- what batches and windows ask ------------------------------------------------------------------------------

    def longest_cached(self, job: Job, wanted: Path) -> Path:
        """Return the cached path of most tokens behind the job's head that stays inside ``wanted``."""
        with self._lock:
            found: Path = job.home.index.view.longest(job.head, Wanted(wanted, self._config.max_visits))
            return found

    def last_used(self, job: Job, path: Path) -> int:
        """Return when what is cached of ``path`` behind the job's head was last used, 0 when nothing is."""
        with self._lock:
            return int(job.home.index.view.last_used(job.head + path))

    def learn(self, job: Job, orders: Sequence[Path]) -> None:
        """Remember orders as what is usually asked for behind the job's head."""
        with self._lock:
            job.home.index.learn(job.head, orders)

    def has_tree(self, job: Job) -> bool:
        """Strategy "paper": tell whether there is a tree behind the job's head."""
        with self._lock:
            return bool(job.home.index.paper.knows(job.head))

    def arrange(self, job: Job, contexts: Mapping[str, Path], built: tuple[ContextTree, Arranged] | None) -> Arranged:
        """Strategy "paper": order the contexts of a batch behind the job's head, see `PaperTrees.arrange`."""
        with self._lock:
            arranged: Arranged = job.home.index.paper.arrange(job.head, contexts, built)
            return arranged

    # -- afterwards ------------------------------------------------------------------------------------------------

    def remember(self, plan: Plan, key: bytes, record: MessageRecord) -> None:
        """Know the message of a plan by its digest from now on, unless the plan is gone."""
        with self._lock:
            namespace = self._known.get(plan.request.namespace)
            if namespace is not None:
                namespace.remember(plan, key, record)

    def commit(self, plan: Plan) -> bool:
        """Confirm a plan in flight."""
        with self._lock:
            job = self._job(plan)
            if job is None:
                return False
            job.home.counters.committed += job.home.commit(job)
            return True

    def abandon(self, plan: Plan) -> bool:
        """Take back a plan in flight."""
        with self._lock:
            job = self._job(plan)
            if job is None or not job.home.abandon(job):
                return False
            job.home.counters.abandoned += 1
            return True

    def observe(self, plan: Plan, served: Served) -> Observation:
        """Compare a response with its prediction, and let the view learn the prompt's KV blocks."""
        with self._lock:
            job = self._job(plan)
            namespace = self._namespace(plan.request.namespace)
            observation = namespace.reports.observe(plan.moment, plan.expected_share, served)
            namespace.counters.observed(observation, served.prompt_tokens)
            if job is not None and served.tokens is not None:
                keys = self._reports.keys(served)
                news = job.home.observe(job, keys, served.tokens, self._reports.block_size)
                if self.shared is not None:
                    self.shared.tell(news)
            return observation

    def evict(self, request_ids: Sequence[str], namespace: str) -> dict[str, int | None]:
        """Release requests: freed tokens by id, None for an unknown one."""
        with self._lock:
            known = self._find(namespace)
            return {name: None if known is None else known.evict(name) for name in request_ids}

    def reset(self, namespace: str | None) -> None:
        """Forget one namespace, or everything."""
        with self._lock:
            self.forgotten(namespace)
            if namespace is None:
                self._gone, self._ids = Counters(), {}
            if self.shared is not None:
                self.shared.record(Reset(namespace))

    def stats(self, namespace: str | None = None) -> EngineStats:
        """Return counters and sizes of one namespace, or over all."""
        with self._lock:
            logged = {} if self.shared is None else self.shared.namespaces
            names = dict.fromkeys([*self._known, *logged]) if namespace is None else [namespace]
            known = [found for name in names if (found := self._find(name)) is not None]
            copies = [logged[name] for name in names if name in logged]
            for each in known:
                each.expire()
            totals = sum((each.totals for each in known), self._gone if namespace is None else Counters())
            return EngineStats(
                **asdict(totals),
                drift=self._drift(known, shared=namespace is None),
                source="events" if any(each.index.view.on_truth for each in known) else "estimate",
                in_flight=sum(len(each.in_flight) for each in known),
                live_requests=sum(len(each.index.view) for each in known),
                cached_tokens=sum(each.index.view.tokens for each in known),
                known_blocks=sum(map(len, chain((n.index.blocks for n in known), (c.blocks for c in copies)))),
                known_messages=sum(map(len, chain((n.conversations for n in known), (c.records for c in copies)))),
                namespaces=len(known),
            )

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless all state is sound."""
        with self._lock:
            for namespace in self._known.values():
                namespace.check_integrity()
            if self.shared is not None:
                self.shared.check_integrity()

    # -- what happened in other processes (`journal.Followers`) ----------------------------------------------------

    def cut(self, namespace: str, request_ids: Sequence[str]) -> None:
        """Follow the shared view: the last blocks of requests left it."""
        if namespace in self._known:
            self._known[namespace].index.cut(request_ids)

    def released(self, namespace: str, request_id: str) -> None:
        """Follow another process, which released a request; one of the same id may have come here since."""
        known = self._known.get(namespace)
        if known is not None and not known.index.view.holds(request_id):
            known.evict(request_id)

    def recorded(self, recorded: Recorded) -> None:
        """Follow another process, which learnt the KV blocks of a request."""
        if self._reports.follows_events:
            self.clock.try_to_ask()
            self._namespace(recorded.namespace).learn(recorded)

    def forgotten(self, namespace: str | None) -> None:
        """Forget one namespace, or all; what it counted stays."""
        for name in list(self._known) if namespace is None else [namespace]:
            known = self._known.pop(name, None)
            if known is not None:
                known.forget()
                self._gone = self._gone + known.totals
        self._share_out()

    def replaced(self) -> None:
        """Follow a shared view that is another one now."""
        for namespace in self._known.values():
            namespace.index.keep_live()

    # --------------------------------------------------------------------------------------------------------------

    def _drift(self, known: Sequence[Namespace], *, shared: bool) -> float | None:
        """Return the drift of one namespace, if there is one, or over all (``shared``), of what they rely on."""
        if not shared:
            return known[0].reports.drift if known else None
        relies = any(each.reports.source == "events" for each in known) or not known
        return self._reports.drift_of("events" if relies and self._reports.moment is not None else "estimate")

    def _forked(self, torn: bool) -> None:
        """In a forked child: where a thread of the parent was in the middle of a change, forget what it changed."""
        if torn:
            self.forgotten(None)
            if self.shared is not None:
                self.shared.restart()

    def _new_ids(self) -> Iterator[str]:
        """Return the names of requests without one, those of this worker."""
        prefix = "" if self.shared is None else f"{self.shared.worker}-"
        return map(f"{prefix}r{{}}".format, numbers(1))

    def _find(self, name: str) -> Namespace | None:
        """Return a namespace that was used here or in another process, else None."""
        elsewhere = self.shared is not None and name in self.shared.namespaces
        return self._namespace(name) if elsewhere or name in self._known else None

    def _namespace(self, name: str) -> Namespace:
        found = self._known.get(name)
        if found is None:
            config, blocks, shared = self._config.of(name), BlockTable(), self.shared
            estimate: View = CacheView(blocks, capacity=config.cache_tokens, max_requests=config.max_requests)
            if shared is not None:
                estimate = shared.view(name, blocks)
            reports = self._reports.part()
            view = reports.view(estimate, blocks)
            records = None if shared is None else shared.records(name)
            found = Namespace(config, self._count, self.seal, self.clock, blocks, view, records, reports, self._lock)
            self._known[name] = found
            self._bound(found)
        self._known.move_to_end(name)
        return found

    def _bound(self, new: Namespace) -> None:
        """Make room for one more namespace: beyond the limit that goes which was used longest ago, and is idle."""
        others = [name for name, each in self._known.items() if each is not new]
        if len(others) >= self._config.max_namespaces:
            oldest = next((name for name in others if self._known[name].is_idle), others[0])
            self.forgotten(oldest)
            self._ids.pop(oldest, None)
            if self.shared is not None:
                self.shared.leave(oldest)
        new.bound(self._share)
        self._share_out()

    def _share_out(self) -> None:
        """Give every namespace an equal share of the memory."""
        share = self._config.share(len(self._known))
        if share != self._share:
            self._share = share
            for each in self._known.values():
                each.bound(share)

    def _job(self, plan: Plan) -> Job | None:
        """Return the job of ``plan``, or None when it is gone, another engine's, or was reset since."""
        if not isinstance(plan, Plan):
            raise RequestTypeError(f"expected a Plan, got {type(plan).__name__}; give what plan() returned")
        namespace = self._known.get(plan.request.namespace)
        return None if namespace is None else namespace.job_of(plan)
