"""The shared state as the log says it is: a function of the entries in their order, and of nothing else.

No clock, no chance and no local id enters it, so workers that have read equally far hold equal states.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from contextpilot_core.cache import BlockTable, CacheView
from contextpilot_core.config import EngineConfig
from contextpilot_core.journal.operations import (
    Committed,
    Entry,
    Inserted,
    NamespaceSnapshot,
    Operation,
    Released,
    Rendered,
    Reset,
    Snapshot,
)
from contextpilot_core.prompt import Conversations

_MOST_WORKERS = 1_000


def rules(config: EngineConfig) -> str:
    """Return what the state depends on besides the log: workers with other rules must not share one."""
    quotas = sorted((config.quotas or {}).items())
    bounds = (config.max_requests, config.max_messages, config.message_seconds, config.max_bytes, config.max_namespaces)
    return repr((config.cache_tokens, quotas, *bounds))


class LoggedNamespace:
    """One namespace of the log: its blocks under ids of their own, what is cached, what messages show."""

    def __init__(self, config: EngineConfig, time: Callable[[], float], room: int) -> None:
        self.blocks = BlockTable()
        self.view = CacheView(self.blocks, capacity=config.cache_tokens, max_requests=config.max_requests)
        self.records = Conversations(limit=config.max_messages, seconds=config.message_seconds, clock=time, room=room)

    def apply(self, operation: Operation) -> Sequence[str]:
        """Follow one operation: the requests whose last blocks had to go for it."""
        self.records.forget_old()
        match operation:
            case Inserted(request_id=request_id, path=path):
                if request_id is not None:
                    self._release(request_id)  # two workers may have given the same id: the later one has it
                blocks = self.blocks.intern_path(path)
                cut = self.view.admit(blocks, request_id)
                self.blocks.release(blocks)
                return cut
            case Released(request_id=request_id):
                self._release(request_id)
            case Committed(request_id=request_id, keys=keys) if self.view.holds(request_id):
                found = [(key, self.records.get(key)) for key in keys]
                self.records.adopt([(key, record) for key, record in found if record is not None], request_id)
            case Rendered(request_id=request_id, key=key, record=record) if self.view.holds(request_id):
                self.records.record(key, record, request_id)
        return ()

    def _release(self, request_id: str) -> None:
        self.view.release(request_id)
        self.records.release(request_id)

    def snapshot(self, namespace: str) -> NamespaceSnapshot:
        """Return the state as values."""
        cache = self.view.state()
        places: dict[int, int] = {}  # by first appearance: equal states have equal places, whatever their ids
        nodes = tuple(
            (parent, tuple([places.setdefault(block, len(places)) for block in blocks]))
            for parent, blocks in cache.nodes
        )
        return NamespaceSnapshot(
            namespace, self.blocks.describe(places), replace(cache, nodes=nodes), self.records.state()
        )

    def restore(self, snapshot: NamespaceSnapshot) -> None:
        """Become what ``snapshot`` says; only for a new one, whose first ids are the snapshot's places."""
        blocks = self.blocks.intern_path(snapshot.blocks)
        self.view.restore(snapshot.cache)
        self.blocks.release(blocks)
        self.records.restore(snapshot.records)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the parts are sound and agree."""
        self.view.check_integrity()
        self.records.check_integrity()
        self.blocks.check_integrity(self.view.references())


class LogState:
    """All namespaces of the log. ``entries`` counts what was applied, ``time`` is that of the latest entry."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._share = config.share(0)
        self.entries = 0
        self.time = 0.0
        self.numbers: OrderedDict[str, int] = OrderedDict()
        self.namespaces: OrderedDict[str, LoggedNamespace] = OrderedDict()  # the one that was used last is the last

    def apply(self, entry: Entry) -> Sequence[str] | None:
        """Follow one entry: the requests whose last blocks had to go for it; None for one that came before."""
        if entry.number <= self.numbers.get(entry.worker, 0):
            return None
        self.numbers[entry.worker] = entry.number
        self.numbers.move_to_end(entry.worker)
        if len(self.numbers) > _MOST_WORKERS:
            self.numbers.popitem(last=False)
        self.entries += 1
        self.time = max(self.time, entry.at)
        operation = entry.operation
        if isinstance(operation, Reset):
            self._reset(operation.namespace)
            return ()
        if isinstance(operation, Inserted) and operation.namespace not in self.namespaces:
            self.namespaces[operation.namespace] = self._logged(operation.namespace)
            while len(self.namespaces) > self._config.max_namespaces:
                self.namespaces.popitem(last=False)
            self._bound()
        logged = self.namespaces.get(operation.namespace)
        if logged is None:
            return ()
        self.namespaces.move_to_end(operation.namespace)
        return logged.apply(operation)

    def _reset(self, namespace: str | None) -> None:
        if namespace is None:
            self.namespaces.clear()
        else:
            self.namespaces.pop(namespace, None)
        self._bound()

    def _bound(self) -> None:
        """Give every namespace an equal share of the memory."""
        share = self._config.share(len(self.namespaces))
        if share != self._share:
            self._share = share
            for logged in self.namespaces.values():
                logged.records.bound(share)

    def _logged(self, namespace: str) -> LoggedNamespace:
        return LoggedNamespace(self._config.of(namespace), lambda: self.time, self._share)

    def snapshot(self) -> Snapshot:
        """Return the whole state as values."""
        namespaces = tuple(self.namespaces[name].snapshot(name) for name in self.namespaces)
        return Snapshot(self.entries, self.time, tuple(self.numbers.items()), namespaces)

    @classmethod
    def restored(cls, config: EngineConfig, snapshot: Snapshot) -> "LogState":
        """Return the state that ``snapshot`` was taken of.

        Raises:
            LookupError, IntegrityError: the values contradict each other.
        """
        state = cls(config)
        state.entries, state.time = snapshot.entries, snapshot.time
        state.numbers.update(snapshot.numbers)
        for part in snapshot.namespaces:
            logged = state.namespaces[part.namespace] = state._logged(part.namespace)
            logged.restore(part)
        state._bound()
        state.check_integrity()
        return state

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless every namespace is sound."""
        for logged in self.namespaces.values():
            logged.check_integrity()
