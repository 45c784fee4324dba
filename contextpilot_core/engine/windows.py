"""Plan waiting requests together against what is cached now (docs: "Windows").

They are merged by what they share and what is cached of it (`clustering_window`), and those that would lose most by
waiting go first. Each is settled against the live view in its turn, so a proposal that has become a bad one is not
followed. Trying several arrangements on a copy of the view and taking the best gained nothing more on any trace.
"""

from collections.abc import Sequence
from functools import partial
from math import inf

from contextpilot_core.clustering.arrange import leads
from contextpilot_core.clustering.families import Families, cached_families
from contextpilot_core.clustering.orders import keep_session_order
from contextpilot_core.clustering.values import Arranged, Path
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.batch import Arrangement, by_head, context_of, plan_batch, plan_together, session_of
from contextpilot_core.engine.namespaces import Opened, Registry
from contextpilot_core.plan.plan import BatchPlan
from contextpilot_core.plan.request import Prepared


def plan_window(registry: Registry, batch: Sequence[Prepared], config: EngineConfig, *, commit: bool) -> BatchPlan:
    """Plan requests together, one namespace after the other; the lock is held for single questions and requests only.

    Other strategies and schedules than "greedy" and "depth-first" know no windows: they plan a batch.
    """
    if config.strategy != "greedy" or config.schedule != "depth-first":
        return plan_batch(registry, batch, config, commit=commit)
    return plan_together(registry, batch, partial(_arranged, registry=registry, config=config), commit=commit)


def _arranged(opened: Sequence[Opened], registry: Registry, config: EngineConfig) -> Arrangement:
    """Send families of requests in the order in which the cache would drop what they find.

    Those that find nothing come last, the larger ones at the end: they are the likelier to be met again.
    """
    if len(opened) == 1:
        return Arrangement((0,), (None,))  # as if it had come alone
    groups = by_head(opened)
    first_of = {id(item.space): position for position, item in reversed(list(enumerate(opened)))}
    arranged: list[Arranged] = []
    families: list[tuple[int, float, int, list[int]]] = []  # namespace, last use of what it finds, size, members
    for members in groups:
        items = [opened[position] for position in members]
        found = _merged(items, registry, config)
        arranged.append(Arranged(found.orders, [()] * len(items), found.shared))
        space, head = items[0].space, items[0].sketch.head
        for family in found.members:
            with registry.lock:
                used = space.index.view.last_used(head + found.orders[family[0]])
            place = first_of[id(space)], used or inf, len(family)
            families.append((*place, [members[number] for number in family]))
    slots = [position for *_, family in sorted(families) for position in family]
    sequence = keep_session_order(slots, [session_of(item) for item in opened])
    weights = [opened[members[0]].space.index.blocks.tokens for members in groups]
    return Arrangement(sequence, leads(groups, arranged, sequence, weights, config.kv_block))


def _merged(items: Sequence[Opened], registry: Registry, config: EngineConfig) -> Families:
    """Merge requests of one namespace behind the same head."""
    index, head = items[0].space.index, items[0].sketch.head

    def cached(wanted: Path) -> Path:
        with registry.lock:
            return index.view.longest(head, wanted, max_visits=config.max_visits)

    return cached_families([context_of(item, config) for item in items], index.blocks.tokens, cached)
