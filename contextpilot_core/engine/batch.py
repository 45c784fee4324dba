"""Plan many requests together, and learn from many. The lock is held per request only, never while clustering."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from contextpilot_core.clustering.arrange import arrange, group, leads, schedule
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.values import Arranged, Lead
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.namespaces import Opened, Registry
from contextpilot_core.plan.plan import BatchPlan, Plan
from contextpilot_core.plan.request import Prepared


@dataclass(frozen=True, slots=True)
class Arrangement:
    """In which order to send requests (input positions), and what each should lead with (by position)."""

    sequence: Sequence[int]
    leads: Sequence[Lead | None]


def plan_batch(registry: Registry, batch: Sequence[Prepared], config: EngineConfig, *, commit: bool) -> BatchPlan:
    """Cluster what stands behind the same head, and plan in the order of the schedule."""
    return plan_together(registry, batch, partial(_clustered, registry=registry, config=config), commit=commit)


def plan_together(
    registry: Registry, batch: Sequence[Prepared], arranging: Callable[[Sequence[Opened]], Arrangement], *, commit: bool
) -> BatchPlan:
    """Open all requests, arrange them, and settle them in sequence; when that breaks off, nothing of it stays."""
    waiting = dict(enumerate(_open_all(registry, batch)))
    plans: dict[int, Plan] = {}
    try:
        arranged = arranging(list(waiting.values()))
        for position in arranged.sequence:
            plans[position] = registry.settle(waiting.pop(position), commit=commit, lead=arranged.leads[position])
    except BaseException:
        registry.cancel(waiting.values())
        for plan in plans.values():
            registry.evict([plan.request_id], plan.request.namespace)
        raise
    return BatchPlan(tuple(plans[position] for position in range(len(batch))), tuple(arranged.sequence))


def by_head(opened: Sequence[Opened]) -> list[list[int]]:
    """Return the positions of requests that may share a prefix: of one namespace, behind the same head."""
    return group([(id(item.space), item.sketch.head) for item in opened])


def _clustered(opened: Sequence[Opened], registry: Registry, config: EngineConfig) -> Arrangement:
    groups = by_head(opened)
    arranged = [_arrange(registry, [opened[position] for position in members], config) for members in groups]
    how = "arrival" if config.strategy == "none" else config.schedule
    sequence = schedule(groups, arranged, [session_of(item) for item in opened], how)
    weights = [opened[members[0]].space.index.blocks.tokens for members in groups]
    return Arrangement(sequence, leads(groups, arranged, sequence, weights, config.kv_block))


def learn(registry: Registry, batch: Sequence[Prepared]) -> None:
    """Let every namespace learn the merged orders of its requests (docs: "Learning from traffic")."""
    opened = _open_all(registry, batch)
    try:
        for members in by_head(opened):
            first = opened[members[0]]
            contexts = [tuple(dict.fromkeys(opened[position].sketch.ids.values())) for position in members]
            arranged = arrange(contexts, first.space.index.blocks.tokens)
            with registry.lock:
                shared = [order[:number] for order, number in zip(arranged.orders, arranged.shared, strict=True)]
                first.space.index.learn(first.sketch.head, shared)
    finally:
        registry.drop(opened)


def _open_all(registry: Registry, batch: Sequence[Prepared]) -> list[Opened]:
    opened: list[Opened] = []
    try:
        for prepared in batch:
            opened.append(registry.open(prepared))
    except BaseException:
        registry.drop(opened)
        raise
    return opened


def _arrange(registry: Registry, members: Sequence[Opened], config: EngineConfig) -> Arranged:
    contexts = {item.name: context_of(item, config) for item in members}
    space, head = members[0].space, members[0].sketch.head
    if config.strategy == "none":
        return Arranged(list(contexts.values()), [(0,)] * len(contexts), [0] * len(contexts))
    if config.strategy == "greedy":
        return arrange(list(contexts.values()), space.index.blocks.tokens)
    tree = None
    with registry.lock:
        known = space.index.has_tree(head)
    if not known:
        tree = ContextTree(config.alpha)
        forest = tree.build(contexts, linkage=config.linkage)  # seconds for thousands of contexts
    with registry.lock:
        if tree is not None and space.index.install(head, tree, contexts):
            return Arranged(forest.orders, forest.paths, forest.shared)
        return space.index.extend(head, contexts)


def context_of(item: Opened, config: EngineConfig) -> tuple[int, ...]:
    """Return the ids to cluster by: those before a hint may share a prefix; selection looks at the budget only."""
    positions = item.sketch.prepared.positions
    if config.budget is not None:
        positions = positions[: config.budget]
    ids = item.sketch.ids
    return tuple(dict.fromkeys([ids[position] for position in positions if position in ids]))


def session_of(item: Opened) -> tuple[str, str] | None:
    """Return the session whose turns have to keep their order, None for a stateless request."""
    request = item.sketch.prepared.request
    return None if request.session_id is None else (request.namespace, request.session_id)
