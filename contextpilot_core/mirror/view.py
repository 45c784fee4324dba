"""A view that follows what the engine says it caches, and falls back to the estimate when it cannot be trusted.

What was recorded is looked up among the KV blocks (`TruthTree`). Requests that were planned but whose prompt tokens
are not known yet, or whose KV blocks have not been reported yet, count as cached for a short while: the next request
may follow them.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain

from contextpilot_core.cache import BlockTable, CacheView, Ends, Keys, Located, View, Wanted
from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.mirror.places import TruthTree

_log = logging.getLogger(__name__)
_MOST_LATE = 1_000
_UNTOLD = 20

SETTLE_SECONDS = 1.0
"""How long the events of a prompt may take after its response."""


class TruthView(View):
    """A view over an ``estimate``.

    ``kv_blocks`` tell what is cached, ``trusted`` whether that may be relied on now, ``clock`` gives seconds. A request
    counts as cached for ``patience`` seconds or until `record` reports it; a later report counts, too. Without reports
    the estimate is used.
    """

    def __init__(
        self,
        estimate: View,
        blocks: BlockTable,
        kv_blocks: KVMirror,
        trusted: Callable[[], bool],
        *,
        max_requests: int,
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self._estimate = estimate
        self._tree = TruthTree(blocks, kv_blocks)
        self._weights = blocks.tokens
        self._expected = CacheView(blocks, capacity=None, max_requests=max_requests)
        self._paths: OrderedDict[str, tuple[Sequence[int], float]] = OrderedDict()  # not recorded: path, deadline
        self._settling: OrderedDict[str, tuple[Keys, float]] = OrderedDict()  # recorded, not yet reported
        self._late: OrderedDict[str, Sequence[int]] = OrderedDict()  # not recorded in time; holds its blocks
        self._blocks, self._kv_blocks, self._trusted = blocks, kv_blocks, trusted
        self._max_requests, self._patience, self._clock = max_requests, patience, clock
        self._learnt = False  # anything at all
        self._untold = 0  # requests in a row whose time was over before `record` told their tokens
        self._patient = False  # some were told: a few may be late

    @property
    def on_truth(self) -> bool:
        """Whether questions are answered by what the engine said."""
        return self._learnt and self._untold < (_UNTOLD if self._patient else 1) and self._trusted()

    @property
    def tokens(self) -> int:
        """Block tokens of the estimate: the engine's own figure is its KV blocks'."""
        return self._estimate.tokens

    def __len__(self) -> int:
        """Return the number of live requests."""
        return len(self._estimate)

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        return self._estimate.holds(request_id)

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached, or will be when the requests before are through."""
        if not self.on_truth:
            return self._estimate.cached_blocks(path)
        self._expire()
        return max(self._tree.cached_blocks(path), self._expected.cached_blocks(path))

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``."""
        views: tuple[TruthTree | View, ...] = (self._estimate,)
        if self.on_truth:
            self._expire()
            views = self._tree, self._expected
        found = [view.longest(head, wanted) for view in views]
        return max(found, key=lambda path: sum(self._weights[block] for block in path))

    def usual(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the estimate's path: what was evicted comes back, and better in the order that others take, too."""
        return self._estimate.longest(head, wanted) if self.on_truth else ()

    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used: a number that grows, 0 when nothing is cached."""
        used = self._estimate.last_used(path)
        if not self.on_truth:
            return used
        return (used or 1) if self.cached_blocks(path) else 0

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Take ``path`` in: it is expected in the cache until its time is over or it is recorded."""
        self._expire()
        if request_id is not None:
            self._expect(path, request_id)
            self._paths[request_id] = path, self._clock() + self._patience
        return self._estimate.admit(path, request_id)

    def record(self, request_id: str, context: int, keys: Keys, counts: Ends) -> Located | None:
        """Learn the KV blocks of a prompt that was sent, and return them; None for a request that waits no more."""
        path = self._take(request_id)
        if path is None:
            return None
        head = len(path) - context
        known = [*counts, *[None] * (context + 1)][: context + 1]
        ends = [*[None] * (head - 1), *known] if head else known[1:]
        located = Located(path, keys, ends)
        self._learn(request_id, located)
        self._untold, self._patient = 0, True
        return located

    def _take(self, request_id: str) -> Sequence[int] | None:
        """Return the path that waits to be recorded, in ``_expected`` again if its time was over."""
        if request_id in self._paths:
            return self._paths.pop(request_id)[0]
        path = self._late.pop(request_id, None)
        if path is not None:
            self._expect(path, request_id)
            self._blocks.release(path)  # only now: until then nothing else may hold them
        return path

    def learn(self, request_id: str, located: Located) -> None:
        """Learn the KV blocks of a prompt that another process sent."""
        self._expire()
        self._expect(located.path, request_id)
        self._learn(request_id, located)

    def _learn(self, request_id: str, located: Located) -> None:
        self._tree.record(request_id, located.path, located.keys, located.ends)
        last = max(filter(None, located.ends), default=0)
        self._settling[request_id] = located.keys[:last], self._clock() + SETTLE_SECONDS
        self._tree.prune(self._max_requests, keep=self._settling)
        self._learnt = True

    def release(self, request_id: str) -> int | None:
        """Forget a request: the tokens that left the estimate, or None for an unknown id."""
        self._forget_expected(request_id)
        known = self._tree.release(request_id)
        freed = self._estimate.release(request_id)
        return 0 if freed is None and known else freed

    def _expire(self) -> None:
        """End the waiting of requests whose time is over or whose KV blocks have come."""
        now = self._clock()
        while self._paths and next(iter(self._paths.values()))[1] <= now:
            self._outlast(next(iter(self._paths)))
        while self._settling:
            request_id, (keys, deadline) = next(iter(self._settling.items()))
            if deadline > now and not self._kv_blocks.holds(keys):
                break
            self._forget_expected(request_id)

    def _outlast(self, request_id: str) -> None:
        """Let a request count as cached no more; its answer may still be under way."""
        path, _ = self._paths[request_id]
        self._blocks.acquire(path)
        self._forget_expected(request_id)
        self._late[request_id] = path
        while len(self._late) > _MOST_LATE:
            self._forget_expected(next(iter(self._late)))
        self._untold += 1
        if self._untold == _UNTOLD and self._learnt:
            _log.warning(
                "no prompt tokens were reported for %d requests: planning on the estimate until they are", _UNTOLD
            )

    def _expect(self, path: Sequence[int], request_id: str) -> None:
        self._forget_expected(request_id)
        for other in self._expected.admit(path, request_id):
            self._forget_expected(other)

    def _forget_expected(self, request_id: str) -> None:
        self._paths.pop(request_id, None)
        self._settling.pop(request_id, None)
        self._blocks.release(self._late.pop(request_id, ()))
        self._expected.release(request_id)

    def references(self) -> Counter[int]:
        """Return how often the view refers to each block id."""
        late = Counter(chain.from_iterable(self._late.values()))
        return self._estimate.references() + self._tree.references() + self._expected.references() + late

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the parts are sound and agree."""
        for part in (self._estimate, self._tree, self._expected):
            part.check_integrity()
        if len(self._expected) != len(set(chain(self._paths, self._settling))):
            raise IntegrityError("the requests that are expected in the cache are not those that wait")
