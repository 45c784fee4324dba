"""What all swap-in hooks share: the order of their documents, the note on the last one, the memory of a session.

A swap-in hook gives documents back and never sees the messages: it drops repeats within the call, moves documents to
the front, and changes no text, but for a note at the end of the last document when the order is not by relevance.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from contextpilot_core.annotations import COMPACT_LABELS
from contextpilot_core.config import EngineConfig, NoteStyle
from contextpilot_core.dedup import body_digest, distinct
from contextpilot_core.engine import ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_core.ordering import prefix_first
from contextpilot_core.plan import Plan
from contextpilot_core.types import ContextBlock, ContextRequest
from contextpilot_core.window import WindowScheduler

RANK = "contextpilot_rank"
"""Metadata key of a document's place in the order of relevance; 0 is the best."""
SOURCES = "contextpilot_sources"
"""Metadata key of all documents that had this text (``id`` and ``metadata`` of each), where there are several."""
NOTE_STYLES = ("compact", "full", "none")

_NOTE_HEAD = "\n\nDocuments above by relevance: "
_ORDINAL = r"[0-9]+(?:st|nd|rd|th)"
_NOTE = re.compile(rf"{re.escape(_NOTE_HEAD)}{_ORDINAL}(?:, {_ORDINAL})*\Z")


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th ..."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else endings.get(number % 10, 'th')}"


def ordinal_note(style: NoteStyle, ranks: Sequence[int]) -> str:
    """Return the note for documents of these relevance ranks, in the order of the prompt; with its blank line.

    "compact" names the places of the best five, "full" of all; nothing is said about an order by relevance.
    """
    best_first = sorted(range(len(ranks)), key=ranks.__getitem__)
    if style == "none" or best_first == list(range(len(ranks))):
        return ""
    named = best_first if style == "full" else best_first[:COMPACT_LABELS]
    return _NOTE_HEAD + ", ".join(ordinal(place + 1) for place in named)


def strip_note(text: str) -> str:
    """Return the text without notes of ours at its end."""
    while True:
        at = text.rfind(_NOTE_HEAD)
        if at < 0 or not _NOTE.match(text, at):
            return text
        text = text[:at]


def relevance_order(texts: Sequence[str], ranks: Sequence[Any]) -> tuple[int, ...]:
    """Return the positions best first: as given, or by rank when the documents come straight from one of our hooks.

    They do when the last text ends in our note and each has a rank of its own (``metadata[RANK]``): then the order
    is no longer that of relevance, and only the ranks still know it. The note alone, which any text may imitate,
    changes nothing.
    """
    positions = tuple(range(len(texts)))
    own = {rank for rank in ranks if isinstance(rank, int)}
    if not texts or strip_note(texts[-1]) == texts[-1] or len(own) < len(texts) or len(ranks) != len(texts):
        return positions
    return tuple(sorted(positions, key=ranks.__getitem__))


class OrderMemory:
    """The last order of each session, the least recently used forgotten first; thread-safe.

    Frameworks copy their objects; the copies share one memory.
    """

    def __init__(self, max_sessions: int = 1_000) -> None:
        """Keep the orders of at most ``max_sessions`` sessions. Raises `ConfigError`."""
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise ConfigError(f"max_sessions={max_sessions!r} must be a whole number of at least 1; change it")
        self._limit = max_sessions
        self._orders: OrderedDict[tuple[str, str], tuple[bytes, ...]] = OrderedDict()
        self._lock = Lock()

    def last(self, namespace: str, session_id: str) -> tuple[bytes, ...]:
        """Return the digests of the session's last documents in their order; none for an unknown session."""
        with self._lock:
            return self._orders.get((namespace, session_id), ())

    def keep(self, namespace: str, session_id: str, order: tuple[bytes, ...]) -> None:
        """Remember the order that a session was given; of two calls at once, the later one's."""
        with self._lock:
            self._orders[namespace, session_id] = order
            self._orders.move_to_end((namespace, session_id))
            if len(self._orders) > self._limit:
                self._orders.popitem(last=False)

    def forget(self, session_id: str, *, namespace: str = "default") -> bool:
        """Forget a session (a new conversation under its name). Returns whether there was one."""
        with self._lock:
            return self._orders.pop((namespace, session_id), None) is not None

    def __len__(self) -> int:
        return len(self._orders)

    def __copy__(self) -> "OrderMemory":
        """Return the memory itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "OrderMemory":
        """Return the memory itself."""
        return self

    def __reduce__(self) -> str:
        """Refuse to be pickled: the state would be lost silently."""
        raise TypeError("an OrderMemory cannot be pickled: its state would be lost; make one per process")


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What a hook gives back. Positions are places in the caller's list.

    order: positions to return, in this order. ranks: their places in the order of relevance, 0 is the best.
    repeats: position that is returned -> positions that were dropped because they have the same text.
    note: what to append to the text of the last one, "" for nothing.
    """

    order: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    repeats: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""


def arrange(
    engine: ReuseEngine,
    blocks: Sequence[ContextBlock],
    *,
    ranks: Sequence[Any] = (),
    k: int | None = None,
    note: NoteStyle | None = None,
    session_id: str | None = None,
    namespace: str = "default",
    orders: OrderMemory | None = None,
) -> Arrangement:
    """Order the documents of one call.

    With a session, documents kept from its last call come first, in that call's order, and the rest by relevance
    (*sticky order*). This order is what the engine then plans as the given one: it moves documents further only when
    that saves more than the note and one KV block. Sticky order yields to selection (``budget``) and to strategy
    "none", which both need the order of relevance.

    Args:
        engine: plans; equal texts are one document for it (``EngineConfig.dedup``).
        blocks: the documents best first, or as one of our hooks returned them. Our note is no part of their text.
        ranks: what ``metadata[RANK]`` of each holds, see `relevance_order`.
        k: keep the best ``k`` different texts; done before anything moves.
        note: style of the note; None is the engine's.
        session_id: names the conversation; None is stateless.
        namespace: orders are shared inside it only.
        orders: where the last orders of the sessions are kept.

    Raises:
        ConfigError: ``k`` is below 1, or ``note`` is no style.
        RequestError: the engine refuses the request.
    """
    asked = _asked(
        engine.config,
        blocks,
        ranks=ranks,
        k=k,
        note=note,
        session_id=session_id,
        namespace=namespace,
        orders=orders,
    )
    return asked.arrangement(engine.plan(**vars(asked.request))) if asked.given else Arrangement()


async def arrange_in_turn(scheduler: WindowScheduler, blocks: Sequence[ContextBlock], **options: Any) -> Arrangement:
    """Do as `arrange` with the scheduler's engine, together with the calls that come at about the same time.

    They go on in the order in which their documents should be sent.
    """
    asked = _asked(scheduler.engine.config, blocks, **options)
    if not asked.given:
        return Arrangement()
    async with scheduler.turn(asked.request) as plan:
        return asked.arrangement(plan)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A call that can be planned: its ``request`` holds the caller's blocks at the positions ``given``.

    ``memory``: where the order is to be kept, None for nowhere.
    """

    request: ContextRequest
    given: tuple[int, ...]
    relevance: tuple[int, ...]
    digests: Sequence[bytes]
    style: NoteStyle
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
            note=ordinal_note(self.style, placed),
        )


def _asked(
    config: EngineConfig,
    blocks: Sequence[ContextBlock],
    *,
    ranks: Sequence[Any] = (),
    k: int | None = None,
    note: NoteStyle | None = None,
    session_id: str | None = None,
    namespace: str = "default",
    orders: OrderMemory | None = None,
) -> _Asked:
    """Return the call of `arrange` with these arguments; nothing is ``given`` when there is nothing to order."""
    style = config.note if note is None else note
    if style not in NOTE_STYLES:
        raise ConfigError(f"note={style!r} is not one of {', '.join(map(repr, NOTE_STYLES))}; choose one of them")
    relevance = relevance_order([block.text for block in blocks], ranks)
    bodies = [replace(block, text=strip_note(block.text)) for block in blocks]
    digests = [body_digest(_shown(body, config)) for body in bodies]
    given = _best(relevance, digests, k, config)
    memory = orders if config.strategy != "none" and config.budget is None else None
    if memory is not None and session_id is not None:
        given = _sticky(given, digests, memory.last(namespace, session_id))
    request = ContextRequest(
        blocks=tuple(bodies[position] for position in given), session_id=session_id, namespace=namespace
    )
    return _Asked(request=request, given=given, relevance=relevance, digests=digests, style=style, memory=memory)


def _shown(block: ContextBlock, config: EngineConfig) -> str:
    """Return the text that decides whether two documents are the same: what the engine would send."""
    return block.text if config.renderer is None else config.renderer(block)


def _best(relevance: tuple[int, ...], digests: Sequence[bytes], k: int | None, config: EngineConfig) -> tuple[int, ...]:
    """Return the positions of the best ``k`` different documents with their repeats, best first."""
    if k is None:
        return relevance
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigError(f"k={k!r} must be a whole number of at least 1, or None for all; change it")
    if not config.dedup:
        return relevance[:k]
    kept, _ = distinct([digests[position] for position in relevance])
    best = {digests[relevance[index]] for index in kept[:k]}
    return tuple(position for position in relevance if digests[position] in best)


def _sticky(given: tuple[int, ...], digests: Sequence[bytes], last: Sequence[bytes]) -> tuple[int, ...]:
    """Return ``given`` with what stood in the last order first, in that order; of repeats the best one."""
    place = {digests[position]: position for position in reversed(given)}
    return prefix_first(given, [place[digest] for digest in last if digest in place])
