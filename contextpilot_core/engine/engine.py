"""The façade: `ReuseEngine` plans requests so that their prompts share prefixes with what is cached."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from contextpilot_core.checks import shown
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.batch import learn, plan_batch
from contextpilot_core.engine.clock import Clock
from contextpilot_core.engine.namespaces import Namespaces
from contextpilot_core.engine.observer import Observer, Told
from contextpilot_core.engine.served import checked_served
from contextpilot_core.engine.windows import plan_window
from contextpilot_core.errors import ConfigError, RequestError, RequestTypeError
from contextpilot_core.journal import Journal
from contextpilot_core.mirror import CacheReports, KVMirror
from contextpilot_core.plan import BatchPlan, Job, Plan, checked_order, prepare
from contextpilot_core.prompt import body_digests
from contextpilot_core.tokens import TokenCounter, Weights, checked, estimate_tokens
from contextpilot_core.types import (
    ContextBlock,
    ContextRequest,
    EngineStats,
    EvictionReport,
    Message,
    Observation,
    OnePerProcess,
    Served,
)


class ReuseEngine(OnePerProcess):
    """Plans prompts for reuse of the prefix cache; thread-safe, deterministic, nothing crosses namespaces.

    ``token_counter`` maps a text to tokens (default: an estimate), ``clock`` gives seconds that never go back.
    ``mirror`` follows the serving engine's KV events: plans then rely on what is really cached, as long as the engine's
    reports agree; None is an estimate. ``journal`` shares the state with other processes, see `Journal`; an engine
    and its journal belong to each other and to the process that made them. ``observer`` is told of plans and responses.

    Raises:
        ConfigError: an argument has the wrong type.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        token_counter: TokenCounter | None = None,
        clock: Callable[[], float] | None = None,
        mirror: KVMirror | None = None,
        journal: Journal | None = None,
        observer: Observer | None = None,
    ) -> None:
        if config is not None and not isinstance(config, EngineConfig):
            raise ConfigError(f"config must be an EngineConfig or None, got {type(config).__name__}; build one")
        if mirror is not None and not isinstance(mirror, KVMirror):
            raise ConfigError(f"mirror must be a KVMirror or None, got {type(mirror).__name__}; make one")
        if journal is not None and not isinstance(journal, Journal):
            raise ConfigError(f"journal must be a Journal or None, got {type(journal).__name__}; give a RedisStore")
        for name, value in (("token_counter", token_counter), ("clock", clock)):
            if value is not None and not callable(value):
                raise ConfigError(f"{name}={shown(value)} must be callable, or None for the default; give a function")
        self._config = config or EngineConfig()
        count = estimate_tokens if token_counter is None else checked(token_counter)
        self._clock, self._told = Clock(clock or time.monotonic), None if observer is None else Told(observer)
        self._weigh, self._reports = Weights(count), CacheReports(self._config, mirror, self._clock)
        self._namespaces = Namespaces(self._config, count, self._clock, self._reports, journal)
        if observer is not None:
            observer.attached(self.stats)
        if journal is not None and self._namespaces.shared is not None:
            journal.open(self._namespaces.shared)  # last: it serves one engine, and nothing may fail after it

    @property
    def follows_events(self) -> bool:
        """Whether the engine has a mirror, for which it needs the exact tokens of prompts (`observe`)."""
        return self._reports.follows_events

    @property
    def config(self) -> EngineConfig:
        """The configuration; it never changes."""
        return self._config

    def plan(
        self,
        blocks: Iterable[str | ContextBlock],
        *,
        query: str = "",
        instructions: str = "",
        messages: Iterable[Message] = (),
        session_id: str | None = None,
        request_id: str | None = None,
        namespace: str = "default",
        remember: bool = True,
        order: Sequence[int] | None = None,
        commit: bool = True,
    ) -> Plan:
        """Plan one request: what to send, in which order, with which hints and note.

        ``blocks`` best first; ``messages`` is the history without the new question; all but ``order`` and ``commit``
        are the fields of `ContextRequest`. With ``commit=False`` the plan is in flight: visible to later plans until
        `commit` confirms it, `abandon` takes it back, or its time is over.

        ``order`` is the ``order`` of a plan that was sent, by this engine or another: a conversation moves, or is made
        known again, and its labels must not change. Turn by turn on top of each other, engines of the same
        configuration then render equal messages, unless one of them has forgotten some of those before: compare with
        what was sent.

        Raises:
            RequestError: the request breaks a rule, or ``order`` does not name the positions of distinct blocks, each
                once (`RequestTypeError` for a wrong type); nothing was changed.
            DuplicateRequestError: ``request_id`` is live in this namespace; nothing was changed.
        """
        started = self._clock.ask()
        request = ContextRequest(
            blocks=blocks,  # type: ignore[arg-type]  # any iterable: prepare() makes it a tuple
            query=query,
            instructions=instructions,
            messages=messages,  # type: ignore[arg-type]
            session_id=session_id,
            request_id=request_id,
            namespace=namespace,
            remember=remember,
        )
        _check_flag("commit", commit)
        job = prepare(request, self._config, self._weigh, seal=self._namespaces.seal)
        kept = None if order is None else checked_order(order, job, self._config)
        plan = self._namespaces.plan(job, commit=commit, order=kept)
        self._planned((plan,), started)
        return plan

    def plan_batch(self, requests: Iterable[ContextRequest], *, commit: bool = True) -> BatchPlan:
        """Plan requests together: plans in input order, and a schedule in which neighbours share prefixes.

        Twice as many requests take about twice as long; longer beyond some thousands of which most, but not all, hold
        the same document.

        Raises as `plan`, and `TooManyContextsError` for more than 20,000 contexts with strategy "paper"; when one
        request is refused, none was planned.
        """
        _check_flag("commit", commit)
        started = self._clock.ask()
        batch = plan_batch(self._namespaces, self._prepare(requests), self._config, commit=commit)
        self._planned(batch.plans, started)
        return batch

    def plan_window(self, requests: Iterable[ContextRequest], *, commit: bool = True) -> BatchPlan:
        """Plan a few requests that wait together against what is cached now; as `plan_batch`, which ignores that.

        Made for windows of up to some hundred requests: of those that stand behind the same messages, each 256 in the
        order given are merged among themselves, so that twice as many take twice as long. Raises as `plan_batch`.
        """
        _check_flag("commit", commit)
        started = self._clock.ask()
        batch = plan_window(self._namespaces, self._prepare(requests), self._config, commit=commit)
        self._planned(batch.plans, started)
        return batch

    async def aplan(self, blocks: Iterable[str | ContextBlock], **options: Any) -> Plan:  # noqa: ANN401
        """Plan one request from a coroutine; arguments as `plan`. Nothing here waits longer than microseconds."""
        return self.plan(blocks, **options)

    async def aplan_batch(self, requests: Iterable[ContextRequest], *, commit: bool = True) -> BatchPlan:
        """Plan a batch off the event loop; arguments as `plan_batch`."""
        return await asyncio.to_thread(self.plan_batch, requests, commit=commit)

    def expected_reuse(self, request: ContextRequest) -> int:
        """Return the ``expected_reused_tokens`` that a plan for ``request`` would have now, in tokens; changes nothing.

        No id is taken, nothing is counted, nothing becomes more recently used.

        Raises:
            RequestError: the request breaks a rule (`RequestTypeError` for a wrong type).
        """
        self._clock.ask()
        return self._namespaces.expect(prepare(request, self._config, self._weigh, seal=self._namespaces.seal))

    def commit(self, plan: Plan) -> bool:
        """Confirm that a plan in flight was sent; again is harmless.

        Returns False, and changes nothing, for a plan that was abandoned, expired, evicted or reset.
        """
        self._clock.ask()
        return self._namespaces.commit(plan)

    def abandon(self, plan: Plan) -> bool:
        """Take back a plan in flight that was not sent. Returns False, and changes nothing, when it is not."""
        self._clock.ask()
        return self._namespaces.abandon(plan)

    def observe(self, plan: Plan, served: Served) -> Observation:
        """Tell what the engine reported for a plan that was sent: the totals of `stats`, drift, and exact tokens.

        With ``served.tokens`` the view learns where the blocks of the prompt lie in the engine's KV blocks.

        Raises:
            RequestError: ``served`` breaks a rule: numbers of tokens are whole and from 0 to 2**40, those of ``tokens``
                within the prompt (`RequestTypeError` for a wrong type); nothing was changed.
        """
        served = checked_served(served)
        self._clock.ask()
        observation = self._namespaces.observe(plan, served)
        if self._told is not None:
            self._told.observed(plan, observation)
        return observation

    def evict(self, request_ids: Iterable[str], *, namespace: str = "default") -> EvictionReport:
        """Release requests that the engine no longer caches. Unknown ids are reported; twice is harmless.

        Raises:
            RequestTypeError: ``request_ids`` is one string instead of a sequence of ids.
        """
        if isinstance(request_ids, (str, bytes)) or not isinstance(request_ids, Iterable):
            raise RequestTypeError(f"request_ids is no sequence of ids: {shown(request_ids)}; put it into a list")
        ids = list(request_ids)
        wrong = [name for name in (*ids, namespace) if not isinstance(name, str)]
        if wrong:
            value = shown(wrong[0])
            raise RequestTypeError(f"request ids and namespace must be str, got {value}; give the ids of plans")
        freed = self._namespaces.evict(list(dict.fromkeys(ids)), namespace)
        return EvictionReport(
            evicted=tuple(name for name, tokens in freed.items() if tokens is not None),
            unknown=tuple(name for name, tokens in freed.items() if tokens is None),
            freed_tokens=sum(tokens or 0 for tokens in freed.values()),
        )

    def reset(self, namespace: str | None = None) -> None:
        """Forget everything of one namespace, or of all (then the counters and generated ids start anew, too)."""
        _check_namespace(namespace)
        self._namespaces.reset(namespace)

    def warm(self, requests: Iterable[ContextRequest]) -> None:
        """Learn the usual orders from earlier traffic; later plans weigh them against what is cached.

        Nothing counts as cached by this. Learnt orders stay until `reset`. It pays where later traffic resembles the
        earlier one, less so for bursts on one topic in a small cache. Raises as `plan`.
        """
        self._clock.ask()
        learn(self._namespaces, self._prepare(requests))

    def stats(self, namespace: str | None = None) -> EngineStats:
        """Return the counters and the present size of the state, of one namespace or (None) over all.

        A tenant may be shown those of the own namespace: nothing of others is in them.
        """
        _check_namespace(namespace)
        self._clock.ask()
        return self._namespaces.stats(namespace)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless all state is sound (for tests: it visits everything)."""
        self._namespaces.check_integrity()

    def _planned(self, plans: Sequence[Plan], started: float) -> None:
        """Remember what the messages of new plans show, and tell the observer of them."""
        for plan in plans:
            if (shown := plan.shown) is not None:
                text, record = shown
                (key,) = body_digests([text], self._namespaces.seal)
                self._namespaces.remember(plan, key, record)
        if self._told is not None and plans:
            self._told.planned(plans, lambda: self._clock.ask() - started)

    def _prepare(self, requests: Iterable[ContextRequest]) -> list[Job]:
        if isinstance(requests, (ContextRequest, str)) or not isinstance(requests, Iterable):
            raise RequestTypeError(
                f"requests is a {type(requests).__name__}; give a list of ContextRequests: [ContextRequest(...), ...]"
            )
        digests: dict[str, bytes] = {}
        jobs = []
        for number, request in enumerate(requests):
            try:
                jobs.append(prepare(request, self._config, self._weigh, seal=self._namespaces.seal, digests=digests))
            except RequestError as error:
                raise type(error)(f"requests[{number}]: {error}") from error
        return jobs


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise RequestTypeError(f"{name}={shown(value)} must be True or False; a plan is confirmed at once, or later")


def _check_namespace(namespace: object) -> None:
    if namespace is not None and not isinstance(namespace, str):
        raise RequestTypeError(f"namespace={shown(namespace)} must be a str, or None for all; give its name")
