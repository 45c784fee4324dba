"""A view that several processes share: what the log of them all says, and what this one did since.

The log's part changes in the order of the log only, so it is the same everywhere; it comes a moment late. Until an
operation of this process has come back from there, an overlay holds it, so that the next plan here can follow it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from contextpilot_core.cache import BlockTable, CacheView, View, Wanted
from contextpilot_core.errors import IntegrityError
from contextpilot_core.journal.log_state import LoggedNamespace
from contextpilot_core.journal.operations import Inserted, Operation, Released


class Source(Protocol):
    """Where a view finds the log's part, and tells what happens here."""

    def logged(self, namespace: str) -> LoggedNamespace | None:
        """Return the log's part of a namespace, None when it holds nothing of it."""

    def record(self, operation: Operation) -> int:
        """Send an operation to the log: its number."""


class _Shared:
    """The log's part of a namespace for questions under the ids of this process."""

    def __init__(self, logged: LoggedNamespace, blocks: BlockTable) -> None:
        self._view = logged.view
        self._find = logged.blocks.find
        self._digest = blocks.digest

    def _leading(self, path: Sequence[int]) -> list[int]:
        """Return the log's ids of ``path`` up to the first block that it does not know."""
        find, digest = self._find, self._digest
        known = []
        for block in path:
            name = find(digest(block))
            if name is None:
                break
            known.append(name)
        return known

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        return self._view.cached_blocks(self._leading(path))

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``."""
        start = self._leading(head)
        if len(start) < len(head):
            return ()
        find, digest = self._find, self._digest
        known = {name: block for block in wanted.blocks if (name := find(digest(block))) is not None}
        optional = frozenset([name for name, block in known.items() if block in wanted.optional])
        found = self._view.longest(start, wanted._replace(blocks=tuple(known), optional=optional))
        return tuple([known[name] for name in found])

    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used."""
        return self._view.last_used(self._leading(path))


@dataclass(frozen=True, slots=True)
class _Pending:
    """The latest operation of this process on one request. ``path``: what it inserted, None when it released."""

    number: int
    path: Sequence[int] | None


class ReplicatedView(View):
    """The view of one namespace of a shared log; ``overlay`` is an empty view of this process's ids."""

    def __init__(self, namespace: str, blocks: BlockTable, overlay: CacheView, source: Source) -> None:
        self._namespace = namespace
        self._blocks = blocks
        self._overlay = overlay
        self._source = source
        self._pending: dict[str, _Pending] = {}

    def delivered(self, number: int, request_id: str) -> None:
        """Take note that an operation on a request came back: the log's part holds it from now on."""
        pending = self._pending.get(request_id)
        if pending is not None and pending.number == number:
            del self._pending[request_id]
            self._overlay.release(request_id)

    @property
    def tokens(self) -> int:
        """Tokens that are believed to be cached; what has not come back yet may be missing."""
        logged = self._logged()
        return max(self._overlay.tokens, 0 if logged is None else logged.view.tokens)

    def __len__(self) -> int:
        """Return the number of live requests."""
        logged = self._logged()
        if logged is None:
            return len(self._overlay)
        known = len(logged.view)
        return known + sum((p.path is not None) - logged.view.holds(name) for name, p in self._pending.items())

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        pending = self._pending.get(request_id)
        if pending is not None:
            return pending.path is not None
        logged = self._logged()
        return logged is not None and logged.view.holds(request_id)

    def cached_blocks(self, path: Sequence[int]) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        shared = self._shared()
        found = 0 if shared is None else shared.cached_blocks(path)
        return max(found, self._overlay.cached_blocks(path)) if self._pending else found

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        """Return the cached path of greatest tokens that follows ``head`` and is ``wanted``."""
        shared = self._shared()
        views: list[_Shared | CacheView] = [] if shared is None else [shared]
        if self._pending:
            views.append(self._overlay)
        weights = self._blocks.tokens
        found = [view.longest(head, wanted) for view in views]
        return max(found, key=lambda path: sum(weights[block] for block in path), default=())

    def last_used(self, path: Sequence[int]) -> int:
        """Return when what is cached of ``path`` was last used: a number that grows, 0 when nothing is cached."""
        logged = self._logged()
        recent = self._overlay.last_used(path)
        if logged is None:
            return recent
        return logged.view.admissions + recent if recent else _Shared(logged, self._blocks).last_used(path)

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        """Take ``path`` in as the latest used; what has to go for it, the log's part tells when it comes back."""
        number = self._source.record(Inserted(self._namespace, request_id, self._blocks.describe(path)))
        if request_id is not None:
            self._overlay.release(request_id)
            self._overlay.admit(path, request_id)
            self._pending[request_id] = _Pending(number, path)
        return []

    def release(self, request_id: str) -> int | None:
        """Forget a request: the tokens that go with it, or None for an unknown id."""
        if not self.holds(request_id):
            return None
        logged = self._logged()
        freed = self._overlay.release(request_id) or 0
        if logged is not None and logged.view.holds(request_id):
            freed = logged.view.freed_by(request_id)
        self._pending[request_id] = _Pending(self._source.record(Released(self._namespace, request_id)), None)
        return freed

    def _logged(self) -> LoggedNamespace | None:
        return self._source.logged(self._namespace)

    def _shared(self) -> _Shared | None:
        logged = self._logged()
        return None if logged is None else _Shared(logged, self._blocks)

    def references(self) -> Counter[int]:
        """Return how often the overlay refers to each block id; the log's part has ids of its own."""
        return self._overlay.references()

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless both parts are sound and the overlay holds what has not come back."""
        self._overlay.check_integrity()
        logged = self._logged()
        if logged is not None:
            logged.check_integrity()
        inserted = {name for name, pending in self._pending.items() if pending.path is not None}
        if not inserted.issuperset(self._overlay.tree.ends):
            raise IntegrityError("the overlay of a replicated view holds a request that does not wait for the log")
