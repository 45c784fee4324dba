"""Decide one request: what is sent, in which order, with which note. Reads state, never writes it.

draft  -> what is visible (hints), what is new, by rank      choose -> selection, order, the net-token rule
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from contextpilot_core.clustering.orders import prefix_first
from contextpilot_core.clustering.values import Lead, Path
from contextpilot_core.config import EngineConfig
from contextpilot_core.plan.lookup import Candidates, ContextIndex
from contextpilot_core.plan.request import Prepared
from contextpilot_core.prompt.layout import order_note
from contextpilot_core.prompt.memory import Conversations
from contextpilot_core.prompt.spans import split_blocks
from contextpilot_core.prompt.visible import MessageRecord, Visible
from contextpilot_core.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class Draft:
    """A request after the visible blocks were taken out.

    ``ids`` maps the positions still to be sent to block ids; ``pinned``: the references that this draft holds.
    """

    prepared: Prepared
    visible: Visible
    head: Path
    hints: Mapping[int, int | None]
    ids: Mapping[int, int]
    hinted_tokens: int
    pinned: Path

    def leading(self, order: Sequence[int]) -> Path:
        """Return the ids of ``order`` before its first hint: behind one, the bytes depend on the hint."""
        if not self.hints:
            return tuple([self.ids[position] for position in order])
        context = []
        for position in order:
            block = self.ids.get(position)
            if block is None:
                break
            context.append(block)
        return tuple(context)


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision. ``order`` holds positions; ``context`` the ids of the leading blocks before the first hint.

    Tokens: head_tokens stand before the context, block_tokens are sent in full, prefix_tokens (of both) are cached,
    expected_tokens are cached of the context, in whole KV blocks.
    """

    order: tuple[int, ...]
    unselected: tuple[int, ...]
    context: Path
    moved: bool
    note: str
    note_tokens: int
    cached_blocks: int
    head_tokens: int
    block_tokens: int
    prefix_tokens: int
    expected_tokens: int
    reason: str


def draft(
    prepared: Prepared, index: ContextIndex, conversations: Conversations, config: EngineConfig, count: TokenCounter
) -> Draft:
    """Find what the messages already show, and intern the rest; the caller has to release ``pinned``."""
    visible = conversations.view(prepared.history)
    hints = visible.hints(prepared.positions, prepared.bodies, prepared.digests, config, count)
    hinted_tokens = sum(max(1, count(prepared.bodies[position])) for position in hints)
    pinned: list[int] = []
    try:
        for digest, weigh in _head(prepared, conversations, count):
            pinned.append(index.blocks.intern(digest, weigh))
        head = tuple(pinned)
        ids: dict[int, int] = {}
        for position in prepared.positions:
            if position not in hints:
                weigh = _weigher(count, prepared.bodies[position])
                ids[position] = index.blocks.intern(prepared.digests[position], weigh)
                pinned.append(ids[position])
    except BaseException:
        index.blocks.release(pinned)
        raise
    return Draft(prepared, visible, head, hints, ids, hinted_tokens, tuple(pinned))


def choose(
    draft: Draft, index: ContextIndex, config: EngineConfig, count: TokenCounter, lead: Lead | None = None
) -> Choice:
    """Select and order; blocks are moved only when that pays after the note (docs: "The note").

    ``lead`` is a batch's proposal; it stands unless more is cached in another order right now. For a batch, bodies
    count as a whole: looking for runs that span hints replace would cost more than the rest of the planning.
    """
    measure = partial(_measure, draft, index, config, count if lead is None else None)
    candidates, by_rank = _candidates(draft, config)
    found = index.lead(draft.head, candidates)
    if lead is not None and _worth(draft, index, found) <= _worth(draft, index, lead):
        found = lead
    plain = measure(by_rank)
    floor = config.kv_block
    plain_tokens = plain.tokens // floor * floor
    moved_order = _moved_order(draft, found.blocks, by_rank, config)
    if moved_order == by_rank:
        why = (
            "the retrieval order already follows the cache" if found.blocks else "nothing that is cached fits in front"
        )
        return _choice(draft, by_rank, plain, plain_tokens, None, f"kept the retrieval order: {why}")
    moved = measure(moved_order)
    moved_tokens = moved.tokens // floor * floor
    worth = max(moved_tokens, found.promise)
    numbers = f"{worth} tokens from the cache instead of {plain_tokens}, a KV block is {floor}"
    if worth <= max(plain_tokens, floor):
        return _choice(draft, by_rank, plain, plain_tokens, None, f"kept the retrieval order: {numbers}")
    if moved_order == tuple(sorted(moved_order)):  # other documents (selection), but by rank: no note is needed
        return _choice(draft, moved_order, moved, moved_tokens, None, f"selected what is cached: {numbers}")
    note = order_note(config.note, _labels_by_rank(draft, moved_order), count)
    note_tokens = count(note) if note else 0
    numbers = f"{numbers}, the note costs {note_tokens}"
    silent = config.note != "none" and not note  # the note does not fit its limit: never reorder without one
    if silent or worth - note_tokens <= max(plain_tokens, floor):
        return _choice(draft, by_rank, plain, plain_tokens, None, f"kept the retrieval order: {numbers}")
    return _choice(draft, moved_order, moved, moved_tokens, (note, note_tokens), f"moved blocks: {numbers}")


def keep(
    draft: Draft, index: ContextIndex, config: EngineConfig, count: TokenCounter, order: tuple[int, ...]
) -> Choice:
    """Return the choice of an order that was decided elsewhere, with the note that it had there."""
    measure = _measure(draft, index, config, count, order)
    tokens = measure.tokens // config.kv_block * config.kv_block
    note = None
    if order != tuple(sorted(order)):
        text = order_note(config.note, _labels_by_rank(draft, order), count)
        note = (text, count(text) if text else 0)
    return _choice(draft, order, measure, tokens, note, "kept the order in which it was sent before")


def _worth(draft: Draft, index: ContextIndex, lead: Lead) -> int:
    """Return the tokens that following a lead saves: those cached now, or those it promises."""
    held = index.view.cached_blocks(draft.head + lead.blocks) - len(draft.head)
    return max(lead.promise, _tokens(index, lead.blocks[: max(0, held)]))


@dataclass(frozen=True, slots=True)
class _Measure:
    context: Path
    cached_blocks: int
    tokens: int
    head_tokens: int
    block_tokens: int
    prefix_tokens: int


def _measure(
    draft: Draft, index: ContextIndex, config: EngineConfig, count: TokenCounter | None, order: Sequence[int]
) -> _Measure:
    """Return what is cached of an order; with ``count`` without the runs that span hints replace."""
    path = draft.leading(order)
    cached_in_all = index.view.cached_blocks(draft.head + path)
    cached = max(0, cached_in_all - len(draft.head))
    tokens = _tokens(index, path[:cached])
    head_tokens = _tokens(index, draft.head)
    prefix_tokens = head_tokens + tokens if cached else _tokens(index, draft.head[:cached_in_all])
    block_tokens = _tokens(index, [draft.ids[position] for position in order if position in draft.ids])
    if count is not None and config.dedup and config.span_dedup:
        tokens -= _replaced_tokens(draft, order[:cached], config, count)
    return _Measure(path, cached, tokens, head_tokens, block_tokens, prefix_tokens)


def _replaced_tokens(draft: Draft, order: Sequence[int], config: EngineConfig, count: TokenCounter) -> int:
    """Return the tokens of leading blocks that are not sent: runs that an earlier text shows (docs: rule 3)."""
    blocks = [
        (label, draft.prepared.bodies[position]) for label, position in enumerate(order, draft.visible.next_label)
    ]
    earlier = draft.visible.sources()
    if len(blocks) < 2 - bool(earlier):
        return 0
    split = split_blocks(blocks, earlier, span_hint=config.span_hint, count=count, unclear=draft.visible.unclear)
    return sum(count(segment.text) for run in split for segment in run if segment.label is not None)


def _choice(
    draft: Draft, order: tuple[int, ...], measure: _Measure, tokens: int, note: tuple[str, int] | None, reason: str
) -> Choice:
    """Make the choice; ``note``: its text and tokens when blocks were moved, None when they keep their ranks."""
    sent = set(order)
    unselected = tuple([position for position in draft.prepared.positions if position not in sent])
    return Choice(
        order=order,
        unselected=unselected,
        context=measure.context,
        moved=note is not None,
        note=note[0] if note else "",
        note_tokens=note[1] if note else 0,
        cached_blocks=measure.cached_blocks,
        head_tokens=measure.head_tokens,
        block_tokens=measure.block_tokens,
        prefix_tokens=measure.prefix_tokens,
        expected_tokens=tokens,
        reason=reason,
    )


def _candidates(draft: Draft, config: EngineConfig) -> tuple[Candidates, tuple[int, ...]]:
    """Return what the search may use, and the positions that plain retrieval would send, by rank."""
    positions = draft.prepared.positions
    if config.budget is None or config.pinned is None or len(positions) <= config.budget:
        return Candidates(tuple(draft.ids.values())), positions
    optional = frozenset(draft.ids[p] for p in positions[config.pinned :] if p in draft.ids)
    candidates = Candidates(tuple(draft.ids.values()), optional, config.budget - config.pinned)
    return candidates, positions[: config.budget]


def _moved_order(draft: Draft, lead: Sequence[int], by_rank: tuple[int, ...], config: EngineConfig) -> tuple[int, ...]:
    first = _positions(draft, lead)
    if len(by_rank) == len(draft.prepared.positions):
        return prefix_first(by_rank, first)
    # Selection: the pinned ones and the lead stay, other places go to the best ranks (docs: "Selection").
    pinned = by_rank[: config.pinned]
    kept = set(pinned).union(first)
    for position in draft.prepared.positions:
        if len(kept) >= len(by_rank):
            break
        kept.add(position)
    return prefix_first([position for position in draft.prepared.positions if position in kept], first)


def _positions(draft: Draft, lead: Sequence[int]) -> list[int]:
    """Return the positions that hold the blocks of ``lead``, each once."""
    by_block = dict(zip(draft.ids.values(), draft.ids, strict=True))
    if len(by_block) == len(draft.ids):
        return [by_block[block] for block in dict.fromkeys(lead) if block in by_block]
    held: dict[int, list[int]] = {}  # with ``dedup=False`` a block may stand at several positions
    for position, block in draft.ids.items():
        held.setdefault(block, []).append(position)
    return [held[block].pop(0) for block in lead if held.get(block)]


def _labels_by_rank(draft: Draft, order: Sequence[int]) -> list[int]:
    """Return the labels of what is sent or hinted at, best rank first; unlabelled hints have none."""
    sent = [position for position in order if position in draft.ids]
    labels: dict[int, int | None] = dict(zip(sent, range(draft.visible.next_label, sys.maxsize), strict=False))
    if draft.hints:
        labels.update((position, draft.hints[position]) for position in order if position in draft.hints)
    by_rank = [labels.get(position) for position in draft.prepared.positions]
    return [label for label in by_rank if label is not None]


def _head(
    prepared: Prepared, conversations: Conversations, count: TokenCounter
) -> Iterator[tuple[bytes, Callable[[], int]]]:
    """Yield (digest, weight) of what stands before the new context: of our own messages the blocks, then the rest."""
    for message in prepared.history:
        record = conversations.get(message.key)
        for digest, tokens in record.path if record is not None else ():
            yield digest, _constant(tokens)
        yield b"message:" + message.digest, _message_weigher(count, message.message, record)


def _message_weigher(
    count: TokenCounter, message: Mapping[str, object], record: MessageRecord | None
) -> Callable[[], int]:
    def weigh() -> int:
        content = message.get("content")
        tokens = count(content) if isinstance(content, str) else count(str(content))
        return tokens - (sum(tokens for _, tokens in record.path) if record is not None else 0)

    return weigh


def _weigher(count: TokenCounter, body: str) -> Callable[[], int]:
    return lambda: count(body)


def _constant(tokens: int) -> Callable[[], int]:
    return lambda: tokens


def _tokens(index: ContextIndex, blocks: Sequence[int]) -> int:
    weights = index.blocks.tokens
    return sum([weights[block] for block in blocks])
