"""The door of the engine: a caller's request is checked and normalised here, once; inside there are only digests.

Everything that can be refused is refused here, and whatever a caller's functions say is asked here, before any state
changes.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, TypeVar

from contextpilot_core.cache import Path
from contextpilot_core.checks import is_unicode, shown
from contextpilot_core.config import EngineConfig
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.prompt import HistoryMessage, Seal, Sections, Visible, body_digests, distinct, history_of, plain
from contextpilot_core.tokens import Weights
from contextpilot_core.types import ContextBlock, ContextRequest, cached_property

_T = TypeVar("_T")
_EACH, _PER_BLOCK = 4_000, 1_000


@dataclass(eq=False, repr=False)
class Job:
    """One request on its way to its plan: each stage fills in its part, and reads what the stages before it found.

    Positions are places in the caller's list. The engine that opened a job owns it, and alone goes on changing it.
    """

    # `prepare`: bodies, digests and tokens by position; distinct positions by rank, and those of repeats.
    request: ContextRequest
    bodies: tuple[str, ...]
    digests: tuple[bytes, ...]
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    repeats: tuple[int, ...]
    history: tuple[HistoryMessage, ...]
    history_tokens: tuple[int, ...]
    query_tokens: int
    # The engine: ``home`` is the namespace that opened it, ``deadline`` in seconds of its clock, ``moment`` what was
    # known of the server's cache (`KVMirror.moment`).
    request_id: str = ""
    home: Any = None
    state: Literal["open", "in flight", "committed", "gone"] = "open"
    deadline: float = 0.0
    moment: int | None = None
    # `look_up`: what the messages show, and what it may become in the prompt; ids of what stands before, and is sent.
    visible: Visible = field(init=False)
    hints: Mapping[int, int | None] = field(init=False)
    sections: Sections = field(init=False)
    head: Path = field(init=False)
    ids: Mapping[int, int] = field(init=False)
    head_tokens: int = field(init=False)
    hinted_tokens: int = field(init=False)
    # `choose`: the order as positions; of its leading blocks before the first hint the ids, and how many are cached.
    order: tuple[int, ...] = field(init=False)
    context: Path = field(init=False)
    cached_blocks: int = field(init=False)
    moved: bool = field(init=False)
    note: str = field(init=False)
    reason: str = field(init=False)
    # In tokens: the note; what is sent in full; what is cached of head and context, and of the context alone, that in
    # whole KV blocks.
    note_tokens: int = field(init=False)
    block_tokens: int = field(init=False)
    prefix_tokens: int = field(init=False)
    expected_tokens: int = field(init=False)
    # `Namespace.settle`: (digest, tokens) of ``context``.
    path: tuple[tuple[bytes, int], ...] = ()

    @cached_property
    def size(self) -> int:
        """About how many bytes of memory it keeps from being freed while it is in flight."""
        return (
            _EACH + _PER_BLOCK * len(self.bodies) + sum(map(sys.getsizeof, self.bodies)) + 4 * sum(self.history_tokens)
        )

    def leading(self, order: Iterable[int]) -> Path:
        """Return the ids of ``order`` before its first hint: behind one, the bytes depend on the hint."""
        if not self.hints:
            return tuple([self.ids[position] for position in order])
        return tuple([self.ids[position] for position in takewhile(self.ids.__contains__, order)])


def prepare(
    request: ContextRequest,
    config: EngineConfig,
    weigh: Weights,
    *,
    seal: Seal = plain,
    digests: dict[str, bytes] | None = None,
) -> Job:
    """Check and normalise one request; ``seal`` closes every digest, ``digests`` is a memo that a batch shares.

    Raises:
        RequestTypeError: a value has the wrong type (one string as blocks, a block that is no text, ...).
        RequestError: a value breaks its rule (an empty id, instructions that differ from the system message).
    """
    if not isinstance(request, ContextRequest):
        raise RequestTypeError(f"a request must be a ContextRequest, got {_kind(request)}; build one")
    blocks = _items("blocks", request.blocks, "strings or ContextBlocks, best first")
    messages = _items("messages", request.messages, "messages in OpenAI form")
    _text("query", request.query, "give '' for none")
    _text("instructions", request.instructions, "give '' for none")
    _text("namespace", request.namespace, "give 'default', or the tenant's name")
    _unicode("namespace", request.namespace)
    _flag("remember", request.remember)
    for name in ("session_id", "request_id"):
        _identifier(name, getattr(request, name))
    bodies = tuple([_body(index, block, config) for index, block in enumerate(blocks)])
    keys = body_digests(bodies, seal, digests)
    positions, repeats = distinct(keys) if config.dedup else (tuple(range(len(keys))), ())
    history = history_of(messages, request.instructions, seal)
    messages = tuple([entry.message for entry in history[len(history) - len(messages) :]])
    if blocks is not request.blocks or messages:
        request = ContextRequest(**{**vars(request), "blocks": blocks, "messages": messages})
    contents = [entry.message.get("content") for entry in history]
    texts = [content if isinstance(content, str) else str(content) for content in contents]
    weights = weigh([*bodies, *texts], [*keys, *[entry.digest for entry in history]])
    return Job(
        request=request,
        bodies=bodies,
        digests=keys,
        tokens=tuple([max(1, count) for count in weights[: len(bodies)]]),
        positions=positions,
        repeats=repeats,
        history=history,
        history_tokens=tuple(weights[len(bodies) :]),
        query_tokens=weigh.count(request.query),
    )


def checked_order(order: Sequence[int], job: Job, config: EngineConfig) -> tuple[int, ...]:
    """Return an order that a caller gives for a job; with selection (``budget``) it may leave blocks out.

    Raises:
        RequestTypeError: it is no sequence of whole numbers.
        RequestError: it does not name the positions of distinct blocks, each once, or too few of them.
    """
    order = _items("order", order, "positions, as a plan has them")
    least = len(job.positions) if config.budget is None else min(config.budget, len(job.positions))
    if not all(isinstance(position, int) and not isinstance(position, bool) for position in order):
        raise RequestTypeError(f"order={shown(order)} must hold whole numbers; give the order of the plan")
    if len(set(order)) < len(order) or not set(order) <= set(job.positions) or len(order) < least:
        raise RequestError(
            f"order={shown(order)} must name positions of distinct blocks, each once, and at least {least} of "
            f"{shown(job.positions)}; give the order of the plan"
        )
    return order


def _items(name: str, value: Iterable[_T], what: str) -> tuple[_T, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, (str, bytes, Mapping, ContextBlock)) or not isinstance(value, Iterable):
        raise RequestTypeError(
            f"{name} must be a sequence of {what}, got one {_kind(value)}; put it into a list: {name}=[...]"
        )
    return tuple(value)


def _body(index: int, block: object, config: EngineConfig) -> str:
    if isinstance(block, str):
        if config.renderer is None:
            return block
        block = ContextBlock(text=block)
    if not isinstance(block, ContextBlock):
        raise RequestTypeError(f"blocks[{index}] must be a str or a ContextBlock, got {_kind(block)}; convert it")
    if block.title is not None and not isinstance(block.title, str):
        raise RequestTypeError(f"blocks[{index}].title must be a str or None, got {_kind(block.title)}; convert it")
    body = block.text if config.renderer is None else config.renderer(block)
    if not isinstance(body, str):
        where = "its text" if config.renderer is None else "what the renderer returned"
        raise RequestTypeError(f"blocks[{index}]: {where} must be a str, got {_kind(body)}; convert it")
    return body


def _text(name: str, value: object, fix: str) -> None:
    if not isinstance(value, str):
        raise RequestTypeError(f"{name} must be a str, got {_kind(value)}; {fix}")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise RequestTypeError(f"{name}={shown(value)} must be True or False; leave it out for True")


def _identifier(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise RequestTypeError(f"{name} must be a str or None, got {_kind(value)}; convert it with str()")
    if not value:
        raise RequestError(f"{name}='' is empty; give a name, or None for none")
    _unicode(name, value)


def _unicode(name: str, value: str) -> None:
    """Raise `RequestError` unless a name can be written in UTF-8: other processes and servers get to see it."""
    if not is_unicode(value):
        raise RequestError(f"{name}={shown(value)} holds half a character (a surrogate); leave it out")


def _kind(value: Any) -> str:
    return type(value).__name__
