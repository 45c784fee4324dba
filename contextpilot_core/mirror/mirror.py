"""A mirror of the prefix cache of a serving engine, kept up to date by its cache events (docs: "Cache events").

The mirror never claims more than it was told. Events in order from any point on keep it a part of the truth: a block
that was stored before that point is missing, and so are its later copies and its children, but nothing is cached that
is not. What arrives out of order or not at all must be noticed by sequence numbers, before the events get here.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from contextpilot_core.checks import whole_number
from contextpilot_core.errors import RequestTypeError
from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent, checked, on_gpu
from contextpilot_core.mirror.keys import ROOT, Extras, chain, prompt_extras
from contextpilot_core.mirror.process_lock import ProcessLock
from contextpilot_core.mirror.rank import Rank

_log = logging.getLogger(__name__)


class KVMirror:
    """Which KV blocks a serving engine holds on its GPU, as its events say; thread-safe.

    Copies are counted per hash and KV cache group: one store per admission, one removal per physical copy. Where
    several groups attend to the whole prefix, a block counts when all of them hold it. Blocks whose parent is unknown
    are orphans: counted, never reusable, also when the parent turns up later; a new store of theirs settles it.
    Ranks are separate caches: a block is cached when any rank holds it, a prefix as far as one single rank holds it.
    A fork empties it in the child and suspends it there for all who fed it, until they resume it in that process.
    Report mode "full" of vLLM (``kv_cache_report_mode``) must stay off: it reports reuse as if it were a store.
    """

    def __init__(self, block_size: int | None = None) -> None:
        """Start empty. ``block_size`` in tokens; None: that of the events, the largest where they differ.

        Raises:
            ConfigError: ``block_size`` is no positive whole number.
        """
        if block_size is not None:
            whole_number("block_size", block_size, "give the server's block size, or None")
        self._given = block_size
        self._size = block_size
        self._ranks: dict[int, Rank] = {}
        self._suspended: dict[str, str] = {}
        self._sources: set[str] = set()  # who ever suspended or resumed it
        self._ignored = 0
        self._moment = 0
        self._lock = ProcessLock(self._forked)

    @property
    def block_size(self) -> int | None:
        """Tokens per KV block; None until the first event tells."""
        return self._size

    @property
    def live(self) -> bool:
        """Whether the mirror may be trusted: nobody has suspended it."""
        with self._lock:
            return not self._suspended

    @property
    def suspensions(self) -> Mapping[str, str]:
        """Who has suspended the mirror, and why."""
        with self._lock:
            return dict(self._suspended)

    @property
    def moment(self) -> int:
        """The number of the present state, which `leading` and `cached_tokens` can be asked about later."""
        return self._moment

    @property
    def tokens(self) -> int:
        """Tokens in reusable blocks, all ranks together."""
        with self._lock:
            return sum(rank.reusable for rank in self._ranks.values()) * (self._size or 0)

    @property
    def orphans(self) -> int:
        """Blocks that are cached, but of unknown content."""
        with self._lock:
            return sum(len(rank) - rank.reusable for rank in self._ranks.values())

    @property
    def ignored(self) -> int:
        """Blocks of events that could not be used: removals of unknown blocks, stores of another shape or size."""
        return self._ignored

    def suspend(self, reason: str, *, source: str = "caller") -> None:
        """Stop claiming to be right, until ``source`` resumes. Events are still followed."""
        with self._lock:
            self._sources.add(source)
            self._suspended[source] = reason

    def resume(self, *, source: str = "caller") -> None:
        """Withdraw the suspension by ``source``; there may be none, or others."""
        with self._lock:
            self._sources.add(source)
            self._suspended.pop(source, None)

    def apply(self, events: Iterable[KVEvent], rank: int = 0) -> None:
        """Follow ``events`` of one rank, in the order in which the engine published them; others are ignored.

        Raises:
            RequestTypeError: a value of an event has the wrong type, or the rank is no int; none was followed.
        """
        if not isinstance(rank, int):
            raise RequestTypeError(f"rank is a {type(rank).__name__}; give the number of the data-parallel rank")
        events = tuple(events)
        for event in events:
            checked(event)
        with self._lock:
            self._moment += 1
            for event in events:
                if isinstance(event, BlockStored):
                    self._store(event, rank)
                elif isinstance(event, BlockRemoved):
                    self._remove(event, rank)
                elif isinstance(event, AllBlocksCleared):
                    self._clear(rank)

    def clear(self, rank: int | None = None) -> None:
        """Forget what a rank holds, or all ranks: the engine, or the way to it, starts anew."""
        with self._lock:
            self._moment += 1
            for number in self._ranks if rank is None else (rank,):
                self._clear(number)

    def keys(self, token_ids: Sequence[int], *, salt: str | None = None, lora: str | None = None) -> tuple[bytes, ...]:
        """Return one key per full KV block of a prompt; none while the block size is unknown.

        Args:
            token_ids: the whole prompt.
            salt: its ``cache_salt``; prompts of different salts share no key.
            lora: the adapter's name.

        Raises:
            TypeError: a token id is no whole number.
            OverflowError: a token id does not fit 32 bits.
        """
        size = self._size
        return () if size is None else _prompt_keys(token_ids, size, salt, lora)

    def holds(self, keys: Sequence[bytes]) -> bool:
        """Return whether some rank holds all of ``keys``. The prefix before them is another question: see `leading`."""
        with self._lock:
            return not keys or any(rank.holds_all(keys) for rank in self._ranks.values())

    def leading(self, keys: Sequence[bytes], *, at: int | None = None) -> int:
        """Return how many of ``keys``, from the first on, the rank that holds most of them holds.

        ``at``: an earlier `moment`, as far back as 100,000 blocks that left are remembered; None is now.
        """
        with self._lock:
            return max((rank.leading(keys, at) for rank in self._ranks.values()), default=0)

    def cached_tokens(
        self, token_ids: Sequence[int], *, salt: str | None = None, lora: str | None = None, at: int | None = None
    ) -> int:
        """Return how many leading tokens of a prompt the engine would take from its cache.

        Whole blocks only, and never the last token, which is always computed. Arguments and errors as `keys`,
        ``at`` as in `leading`.
        """
        size = self._size
        if size is None:
            return 0
        keys = _prompt_keys(token_ids[: max(0, len(token_ids) - 1)], size, salt, lora)
        return size * self.leading(keys, at=at)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless blocks, copies and keys agree."""
        with self._lock:
            for rank in self._ranks.values():
                rank.check_integrity()

    def _forked(self, torn: bool) -> None:
        """In a forked child: nobody feeds the mirror here, and it may have been copied in the middle of a change."""
        if not self._moment and not self._sources:
            return  # nobody has told it anything
        self._ranks, self._size, self._moment = {}, self._given, self._moment + 1
        reason = "it was fed before a fork, in another process"
        self._suspended = dict.fromkeys(self._sources or ("caller",), reason)
        _log.warning(
            "a KVMirror does not survive a fork: plans rely on the estimate; make the mirror and its KVEventSubscriber "
            "in the process that uses them"
        )

    def _store(self, event: BlockStored, number: int) -> None:
        if not event.decides_reuse:
            return
        if not self._fits(event):
            self._ignored += len(event.block_hashes)
            return
        rank = self._ranks.setdefault(number, Rank())
        keys = self._keys_of(event, rank)
        for position, name in enumerate(event.block_hashes):
            rank.add(name, event.group_idx, keys[position] if keys else None, self._moment)

    def _fits(self, event: BlockStored) -> bool:
        size = event.block_size
        blocks = len(event.block_hashes)
        if size < 1 or not blocks or len(event.token_ids) != size * blocks:
            return False
        if event.extra_keys is not None and len(event.extra_keys) != blocks:
            return False
        if self._size is None or (self._given is None and size > self._size):
            # vLLM stores the begun block of a prompt under a smaller size: the full ones are larger.
            for number in self._ranks:
                self._clear(number)
            self._size = size
        return size == self._size

    def _keys_of(self, event: BlockStored, rank: Rank) -> list[bytes] | None:
        """The keys of the event's blocks; None for orphans."""
        parent = ROOT if event.parent_block_hash is None else rank.key_of(event.parent_block_hash)
        if parent is None:
            return None
        try:
            return list(chain(parent, event.token_ids, event.block_size, _extras_of(event)))
        except (TypeError, OverflowError, RecursionError):
            return None  # nothing that a prompt of ours could have

    def _clear(self, number: int) -> None:
        if number in self._ranks:
            self._ranks[number].clear(self._moment)
        if not any(map(len, self._ranks.values())):
            self._size = self._given  # a new engine may have another

    def _remove(self, event: BlockRemoved, number: int) -> None:
        rank = self._ranks.get(number)
        if not on_gpu(event.medium, event.locality):
            return
        for name in event.block_hashes:
            if rank is None or not rank.remove(name, event.group_idx, self._moment):
                self._ignored += 1


def _prompt_keys(token_ids: Sequence[int], size: int, salt: str | None, lora: str | None) -> tuple[bytes, ...]:
    extras = prompt_extras(len(token_ids) // size, salt=salt, lora=lora)
    return tuple(chain(ROOT, token_ids, size, extras))


def _extras_of(event: BlockStored) -> Sequence[Extras]:
    if event.extra_keys is not None:
        return event.extra_keys
    salt = event.cache_salt if event.parent_block_hash is None else None
    lora = event.lora_name if event.lora_name is not None else event.lora_id
    return prompt_extras(len(event.block_hashes), salt=salt, lora=lora)
