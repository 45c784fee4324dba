"""Plan many requests together, and learn from many. The lock is held per request only, never while clustering."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from contextpilot_core.cache import Path
from contextpilot_core.clustering import Arranged, ContextTree, Lead, arrange, group, leads, schedule
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.namespaces import Namespaces
from contextpilot_core.plan import BatchPlan, Job, Plan


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """In which order to send requests (input positions), and what each should lead with (by position)."""

    sequence: Sequence[int]
    leads: Sequence[Lead | None]


def plan_batch(namespaces: Namespaces, jobs: Sequence[Job], config: EngineConfig, *, commit: bool) -> BatchPlan:
    """Cluster what stands behind the same head, and plan in the order of the schedule."""
    return plan_together(namespaces, jobs, partial(_clustered, jobs, namespaces, config), commit=commit)


def plan_together(
    namespaces: Namespaces, jobs: Sequence[Job], ordering: Callable[[], BatchOrder], *, commit: bool
) -> BatchPlan:
    """Open all requests, order them, and settle them in sequence; when that breaks off, nothing of it stays.

    (But what the first ones pushed out of a full view is gone, as after any plan that is abandoned.)
    """
    _open_all(namespaces, jobs)
    plans: dict[int, Plan] = {}
    try:
        ordered = ordering()
        namespaces.clock.ask()  # that may have taken long
        for position in ordered.sequence:
            plans[position] = namespaces.settle(jobs[position], commit=commit, lead=ordered.leads[position])
    except BaseException:
        namespaces.cancel(jobs)
        for plan in plans.values():
            namespaces.evict([plan.request_id], plan.request.namespace)
        raise
    namespaces.count(jobs)
    return BatchPlan(tuple(plans[position] for position in range(len(jobs))), tuple(ordered.sequence))


def by_head(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the positions of requests that may share a prefix: of one namespace, behind the same head."""
    return group([(id(job.home), job.head) for job in jobs])


def _clustered(jobs: Sequence[Job], namespaces: Namespaces, config: EngineConfig) -> BatchOrder:
    groups = by_head(jobs)
    arranged = [_arrange(namespaces, [jobs[position] for position in members], config) for members in groups]
    how = "arrival" if config.strategy == "none" else config.schedule
    sequence = schedule(groups, arranged, [session_of(job) for job in jobs], how)
    weights = [jobs[members[0]].home.index.blocks.tokens for members in groups]
    return BatchOrder(sequence, leads(groups, arranged, sequence, weights, config.kv_block))


def learn(namespaces: Namespaces, jobs: Sequence[Job]) -> None:
    """Let every namespace learn the merged orders of its requests (docs: "Learning from traffic")."""
    _open_all(namespaces, jobs)
    try:
        for members in by_head(jobs):
            first = jobs[members[0]]
            contexts = [tuple(dict.fromkeys(jobs[position].ids.values())) for position in members]
            arranged = arrange(contexts, first.home.index.blocks.tokens)
            shared = [order[:number] for order, number in zip(arranged.orders, arranged.shared, strict=True)]
            namespaces.learn(first, shared)
    finally:
        namespaces.cancel(jobs)


def _open_all(namespaces: Namespaces, jobs: Sequence[Job]) -> None:
    opened: list[Job] = []
    try:
        for job in jobs:
            namespaces.open(job)
            opened.append(job)
    except BaseException:
        namespaces.cancel(opened)
        raise


def _arrange(namespaces: Namespaces, members: Sequence[Job], config: EngineConfig) -> Arranged:
    contexts = {job.request_id: context_of(job, config) for job in members}
    first = members[0]
    if config.strategy == "none":
        return Arranged(list(contexts.values()), [(0,)] * len(contexts), [0] * len(contexts))
    if config.strategy == "greedy":
        return arrange(list(contexts.values()), first.home.index.blocks.tokens)
    built = None
    if not namespaces.has_tree(first):
        tree = ContextTree(config.alpha)
        built = tree, tree.build(contexts, linkage=config.linkage)  # seconds for thousands of contexts
    return namespaces.arrange(first, contexts, built)


def context_of(job: Job, config: EngineConfig) -> Path:
    """Return the ids to cluster by: those before a hint may share a prefix; selection looks at the budget only."""
    positions = job.positions if config.budget is None else job.positions[: config.budget]
    return tuple(dict.fromkeys([job.ids[position] for position in positions if position in job.ids]))


def session_of(job: Job) -> tuple[str, str] | None:
    """Return the session whose turns have to keep their order, None for a stateless request."""
    session_id = job.request.session_id
    return None if session_id is None else (job.request.namespace, session_id)
