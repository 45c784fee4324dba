"""What all swap-in hooks share: the order of their documents.

A swap-in hook gives documents back and never sees the messages: it drops repeats within the call, moves documents to
the front, and changes no text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, Plan, ReuseEngine, WindowScheduler
from contextpilot_core.checks import whole_number
from contextpilot_core.clustering import prefix_first
from contextpilot_core.prompt import body_digest, distinct
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.reorder.ranks import relevance_order


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What a hook gives back. Positions are places in the caller's list.

    order: positions to return, in this order. ranks: their places in the order of relevance, 0 is the best.
    repeats: position that is returned -> positions that were dropped because they have the same text.
    """

    order: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    repeats: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def arrange(engine: ReuseEngine, blocks: Sequence[ContextBlock], **options: Any) -> Arrangement:
    """Order the documents of one call; ``options`` and errors as in `asked`, `RequestError` as in ``engine.plan``.

    With a session, documents kept from its last call come first, in that call's order, and the rest by relevance
    (*sticky order*). This order is what the engine then plans as the given one: it moves documents further only when
    that saves more than the note and one KV block. Sticky order yields to selection (``budget``) and to strategy
    "none", which both need the order of relevance.
    """
    call = asked(engine.config, blocks, **options)
    return call.arrangement(engine.plan(**vars(call.request))) if call.given else Arrangement()


async def arrange_in_turn(scheduler: WindowScheduler, blocks: Sequence[ContextBlock], **options: Any) -> Arrangement:
    """Do as `arrange` with the scheduler's engine, together with the calls that come at about the same time.

    They go on in the order in which their documents should be sent.
    """
    call = asked(scheduler.engine.config, blocks, **options)
    if not call.given:
        return Arrangement()
    async with scheduler.turn(call.request) as plan:
        return call.arrangement(plan)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that can be planned: its ``request`` holds the caller's blocks at the positions ``given``.

    ``memory``: where the order is to be kept, None for nowhere.
    """

    request: ContextRequest
    given: tuple[int, ...]
    relevance: tuple[int, ...]
    digests: Sequence[bytes]
    memory: OrderMemory | None

    def arrangement(self, plan: Plan) -> Arrangement:
        """Return what the plan means for the caller's list."""
        digests, session_id = self.digests, self.request.session_id
        order = tuple(self.given[index] for index in plan.order)
        if self.memory is not None and session_id is not None:
            self.memory.keep(self.request.namespace, session_id, tuple(digests[p] for p in order))
        rank_of = {position: rank for rank, position in enumerate(self.relevance)}
        placed = tuple(rank_of[position] for position in order)
        repeats: dict[int, list[int]] = {}
        first = {digests[position]: position for position in reversed(order)}
        for position in sorted((self.given[index] for index in plan.dropped), key=rank_of.__getitem__):
            if digests[position] in first:
                repeats.setdefault(first[digests[position]], []).append(position)
        return Arrangement(
            order=order,
            ranks=placed,
            repeats={position: tuple(others) for position, others in repeats.items()},
        )


def asked(
    config: EngineConfig,
    blocks: Sequence[ContextBlock],
    *,
    k: int | None = None,
    session_id: str | None = None,
    namespace: str = "default",
    orders: OrderMemory | None = None,
) -> Call:
    """Return a call that can be planned; nothing is ``given`` when there is nothing to order.

    Args:
        config: the engine's; equal texts are one document for it (``dedup``).
        blocks: the documents best first, or as one of our hooks returned them (by their metadata).
        k: keep the best ``k`` different texts; done before anything moves.
        session_id: names the conversation; None is stateless.
        namespace: orders are shared inside it only.
        orders: where the last orders of the sessions are kept.

    Raises:
        ConfigError: ``k`` is below 1.
    """
    relevance = relevance_order([block.metadata or {} for block in blocks])
    digests = [body_digest(_shown(block, config)) for block in blocks]
    given = _best(relevance, digests, k, config)
    memory = orders if config.strategy != "none" and config.budget is None else None
    if memory is not None and session_id is not None:
        given = _sticky(given, digests, memory.last(namespace, session_id))
    request = ContextRequest(
        blocks=tuple(blocks[position] for position in given),
        session_id=session_id,
        namespace=namespace,
        remember=False,
    )
    return Call(request=request, given=given, relevance=relevance, digests=digests, memory=memory)


def _shown(block: ContextBlock, config: EngineConfig) -> str:
    """Return the text that decides whether two documents are the same: what the engine would send."""
    return block.text if config.renderer is None else config.renderer(block)


def _best(relevance: tuple[int, ...], digests: Sequence[bytes], k: int | None, config: EngineConfig) -> tuple[int, ...]:
    """Return the positions of the best ``k`` different documents with their repeats, best first."""
    if k is None:
        return relevance
    whole_number("k", k, "give how many documents to keep, or None for all")
    if not config.dedup:
        return relevance[:k]
    kept, _ = distinct([digests[position] for position in relevance])
    best = {digests[relevance[index]] for index in kept[:k]}
    return tuple(position for position in relevance if digests[position] in best)


def _sticky(given: tuple[int, ...], digests: Sequence[bytes], last: Sequence[bytes]) -> tuple[int, ...]:
    """Return ``given`` with what stood in the last order first, in that order; of repeats the best one."""
    place = {digests[position]: position for position in reversed(given)}
    return prefix_first(given, [place[digest] for digest in last if digest in place])
