"""Plan waiting requests together against what is cached now (docs: "Windows").

They are merged by what they share and what is cached of it (`clustering.families`), and those that would lose most by
waiting go first. Each is settled against the live view in its turn, so a proposal that has become a bad one is not
followed. Trying several arrangements on a copy of the view and taking the best gained nothing more on any trace.
"""

from collections.abc import Sequence
from functools import partial
from math import inf

from contextpilot_core.clustering import Arranged, cached_families, keep_session_order, leads
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.batch import BatchOrder, by_head, context_of, plan_batch, plan_together, session_of
from contextpilot_core.engine.namespaces import Namespaces
from contextpilot_core.plan import BatchPlan, Job

LARGEST = 256
"""Requests behind one head that are merged among themselves; of more, the next ones are another such family."""


def plan_window(namespaces: Namespaces, jobs: Sequence[Job], config: EngineConfig, *, commit: bool) -> BatchPlan:
    """Plan requests together, one namespace after the other; the lock is held for single questions and requests only.

    Other strategies and schedules than "greedy" and "depth-first" know no windows: they plan a batch.
    """
    if config.strategy != "greedy" or config.schedule != "depth-first":
        return plan_batch(namespaces, jobs, config, commit=commit)
    return plan_together(namespaces, jobs, partial(_ordered, jobs, namespaces, config), commit=commit)


def _ordered(jobs: Sequence[Job], namespaces: Namespaces, config: EngineConfig) -> BatchOrder:
    """Send families of requests in the order in which the cache would drop what they find.

    Those that find nothing come last, the larger ones at the end: they are the likelier to be met again.
    """
    if len(jobs) == 1:
        return BatchOrder((0,), (None,))  # as if it had come alone
    groups = [part for members in by_head(jobs) for part in _parts(members)]
    first_of = {id(job.home): position for position, job in reversed(list(enumerate(jobs)))}
    weights = [jobs[members[0]].home.index.blocks.tokens for members in groups]
    arranged: list[Arranged] = []
    families: list[tuple[int, float, int, list[int]]] = []  # namespace, last use of what it finds, size, members
    for members, tokens in zip(groups, weights, strict=True):
        first = jobs[members[0]]
        contexts = [context_of(jobs[position], config) for position in members]
        found = cached_families(contexts, tokens, partial(namespaces.longest_cached, first))
        arranged.append(Arranged(found.orders, [()] * len(members), found.shared))
        for family in found.members:
            used = namespaces.last_used(first, found.orders[family[0]])
            place = first_of[id(first.home)], used or inf, len(family)
            families.append((*place, [members[number] for number in family]))
    slots = [position for *_, family in sorted(families) for position in family]
    sequence = keep_session_order(slots, [session_of(job) for job in jobs])
    return BatchOrder(sequence, leads(groups, arranged, sequence, weights, config.kv_block))


def _parts(members: list[int]) -> list[list[int]]:
    return [members[start : start + LARGEST] for start in range(0, len(members), LARGEST)]
