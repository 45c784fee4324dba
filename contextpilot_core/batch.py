"""Plan many requests together, and learn from many. The lock is held per request only, never while clustering."""

from collections.abc import Sequence

from contextpilot_core.arrange import arrange, group, leads, schedule
from contextpilot_core.config import EngineConfig
from contextpilot_core.context_tree import ContextTree
from contextpilot_core.index import Arranged
from contextpilot_core.intake import Prepared
from contextpilot_core.plan import BatchPlan, Plan
from contextpilot_core.registry import Opened, Registry


def plan_batch(registry: Registry, batch: Sequence[Prepared], config: EngineConfig, *, commit: bool) -> BatchPlan:
    """Cluster what stands behind the same head, schedule, then settle one by one in the order of the schedule."""
    waiting = dict(enumerate(_open_all(registry, batch)))
    opened = list(waiting.values())
    plans: dict[int, Plan] = {}
    try:
        groups = group([(id(item.space), item.sketch.head) for item in opened])
        arranged = [_arrange(registry, [opened[position] for position in members], config) for members in groups]
        sessions = [_session(item) for item in batch]
        sequence = schedule(groups, arranged, sessions, "arrival" if config.strategy == "none" else config.schedule)
        weights = [opened[members[0]].space.index.blocks.tokens for members in groups]
        proposals = leads(groups, arranged, sequence, weights, config.kv_block)
        for position in sequence:
            plans[position] = registry.settle(waiting.pop(position), commit=commit, lead=proposals[position])
    finally:
        registry.cancel(waiting.values())
    return BatchPlan(tuple(plans[position] for position in range(len(batch))), tuple(sequence))


def learn(registry: Registry, batch: Sequence[Prepared]) -> None:
    """Let every namespace learn the merged orders of its requests (docs: "Learning from traffic")."""
    opened = _open_all(registry, batch)
    try:
        for members in group([(id(item.space), item.sketch.head) for item in opened]):
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
    contexts = {item.name: _context(item, config) for item in members}
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


def _context(item: Opened, config: EngineConfig) -> tuple[int, ...]:
    """Return the ids to cluster by: those before a hint may share a prefix; selection looks at the budget only."""
    positions = item.sketch.prepared.positions
    if config.budget is not None:
        positions = positions[: config.budget]
    ids = item.sketch.ids
    return tuple(dict.fromkeys([ids[position] for position in positions if position in ids]))


def _session(item: Prepared) -> tuple[str, str] | None:
    name = item.request.session_id
    return None if name is None else (item.request.namespace, name)
