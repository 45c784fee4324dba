"""Values between callers, stages and the engine (frozen, keyword-only), and what all holders of state share."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

_MOST_LOOKS, _SAMPLE = 128, 16
_PLAIN = (str, bytes, int, float, type(None), type)

Message: TypeAlias = Mapping[str, Any]
"""One chat message in OpenAI form: ``role``, ``content`` (str, list of parts or None) and whatever else."""


@dataclass(frozen=True, kw_only=True)
class ContextBlock:
    """One retrieved unit. ``text`` is its identity; ``id`` is a label for people and may be anything or None."""

    text: str
    id: Any = None
    title: str | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)


def kept_bytes(value: object) -> int:
    """Return about how many bytes of memory a caller's value keeps; of large collections a sample is looked at."""
    if type(value) is dict and len(value) <= _SAMPLE:  # what most are
        values = value.values()
        if all([isinstance(each, _PLAIN) for each in values]):
            return sys.getsizeof(value) + sum(map(sys.getsizeof, value)) + sum(map(sys.getsizeof, values))
    found, stack = 0.0, [(value, 1.0)]
    for _ in range(_MOST_LOOKS):
        if not stack:
            break
        each, times = stack.pop()
        try:
            found += times * sys.getsizeof(each, 64)
            inner = () if isinstance(each, _PLAIN) else _inside(each)
        except Exception:  # noqa: BLE001  # whatever it is, it is only weighed
            continue
        sample = inner[:_SAMPLE]
        stack.extend([(part, times * len(inner) / len(sample)) for part in sample])
    return int(found)


def _inside(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(value)
    return tuple(getattr(value, "__dict__", {}).values())


@dataclass(frozen=True, kw_only=True)
class ContextRequest:
    """What one request brings: its blocks best first, and what stands around them in the prompt.

    ``messages`` is the history without the new question. ``session_id=None`` is stateless. ``remember=False``: only the
    order is asked for, or no later turn will follow; then nothing is rendered before it is read, and a later request
    whose messages show these blocks gets them again in full.
    """

    blocks: Sequence[str | ContextBlock]
    query: str = ""
    instructions: str = ""
    messages: Sequence[Message] = ()
    session_id: str | None = None
    request_id: str | None = None
    namespace: str = "default"
    remember: bool = True


@dataclass(frozen=True, kw_only=True)
class Hint:
    """A block that was not sent again because the messages already show it.

    ``position`` is its place in the caller's list; ``label`` the number of the ``[Doc n]`` that holds the same
    text, or None when it stands in a message that we did not render.
    """

    position: int
    label: int | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """What ``[Doc label]`` stands for: all blocks that were given with this text, the one that is shown first.

    Several blocks have one text when it was found in several places; each has its own id and metadata.
    """

    label: int
    blocks: tuple[ContextBlock, ...]

    @property
    def block(self) -> ContextBlock:
        """The block that was sent, or the first that a hint replaced."""
        return self.blocks[0]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of one block's body. ``label`` None: sent literally; else replaced by a hint to ``[Doc label]``.

    ``text`` is always the original text, so joining the segments of a block restores its body.
    """

    text: str
    label: int | None = None


@dataclass(frozen=True, slots=True)
class SpanSource:
    """One contiguous text that the prompt literally shows inside ``[Doc label]``; ``anchors``: hash -> offset."""

    label: int
    text: str
    anchors: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """Figures of one plan, in tokens of the engine's counter.

    block_tokens: bodies sent in full; hinted_tokens: bodies replaced by whole-block hints; span_tokens: runs inside
    sent bodies replaced by span hints; note_tokens: the order note, never cached; expected_reused_tokens: block tokens
    expected in the prefix cache, in whole KV blocks.
    """

    blocks: int
    block_tokens: int
    hinted_tokens: int
    span_tokens: int
    note_tokens: int
    expected_reused_tokens: int
    moved: bool
    dropped: int
    unselected: tuple[int, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class EvictionReport:
    """What ``evict`` did: ids that were released, ids that were not live, tokens that left the cache view."""

    evicted: tuple[str, ...]
    unknown: tuple[str, ...]
    freed_tokens: int


@dataclass(frozen=True, kw_only=True)
class PromptTokens:
    """The exact token ids of one prompt, as the engine computed them.

    ``start``: tokens before the context; ``ends``: tokens up to the end of each of its items, in the order of the
    prompt. None is unknown.
    """

    token_ids: Sequence[int]
    start: int | None = None
    ends: Sequence[int | None] = ()


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is known of a prompt after its response. None is unknown, which is not 0.

    ``prompt_tokens``, ``cached_tokens``: as reported; ``cache_salt``: the salt that was sent with it.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    tokens: PromptTokens | None = None
    cache_salt: str | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Cached tokens of one request: predicted when it was planned, and as the engine reported them.

    ``source``: what the prediction relied on, the engine's KV events or the estimate.
    """

    predicted: int | None
    reported: int | None
    source: Literal["events", "estimate"]


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """Counters since the engine was made or reset, and the present size of its state (tokens are block tokens).

    compared: responses for which a prediction and a report are known; of these prompt_tokens, predicted_tokens and
    reported_tokens, in the engine's tokens. unreported: responses without a report. drift: mean of predicted minus
    reported tokens over the last 20. source: what plans rely on now.
    """

    planned: int
    committed: int
    abandoned: int
    expired: int
    in_flight: int
    live_requests: int
    cached_tokens: int
    known_blocks: int
    known_messages: int
    block_tokens: int
    expected_reused_tokens: int
    note_tokens: int
    hinted_tokens: int
    dropped_blocks: int
    evictions: int
    compared: int
    unreported: int
    prompt_tokens: int
    predicted_tokens: int
    reported_tokens: int
    drift: float | None
    source: Literal["events", "estimate"]
    namespaces: int


_Own = TypeVar("_Own")


class OnePerProcess:
    """Holds state: frameworks copy what they are given, and the copies must share it; pickled, it would be lost."""

    def __copy__(self: _Own) -> _Own:
        """Return the object itself."""
        return self

    def __deepcopy__(self: _Own, memo: dict[int, Any]) -> _Own:
        """Return the object itself."""
        return self

    def __reduce__(self) -> str:
        """Refuse to be pickled."""
        raise TypeError(f"{type(self).__name__} cannot be pickled: its state would be lost; make one per process")


_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):  # noqa: N801
    """As `functools.cached_property` since Python 3.12: without a lock that all objects of a class share.

    Such a lock lets all threads wait for the one that works a value out, and in a forked child for ever. Two threads
    may work out a value twice, so it has to be the same.
    """

    def __init__(self, work: Callable[[Any], _Value]) -> None:
        self._work, self._name, self.__doc__ = work, work.__name__, work.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "cached_property[_Value]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...
    def __get__(self, instance: object | None, owner: type) -> "_Value | cached_property[_Value]":
        """Return the value; only the first time, as it then stands in the object itself."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._work(instance)
        return value
