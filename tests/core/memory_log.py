"""A log in memory, and workers that meet it as slowly, as often or as seldom as a test says."""

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.journal.log_state import LogState
from contextpilot_core.journal.operations import Entry, Snapshot
from contextpilot_core.journal.state import SharedState
from contextpilot_core.prompt.messages import plain
from contextpilot_core.types import ContextRequest
from tests.core.conftest import body

TEXTS = [body(name, 20) for name in range(9)]
SIZES = {"tight": 100, "wide": 4_000}


class MemoryLog:
    """Entries in their order; each is as old as it is late in the log."""

    def __init__(self, config: EngineConfig, seed: Snapshot | None = None) -> None:
        self.config = config
        self.seed = seed
        self.entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        self.entries.append(Entry(entry.worker, entry.number, entry.operation, float(len(self.entries))))

    def state(self, until: int | None = None) -> LogState:
        state = LogState(self.config) if self.seed is None else LogState.restored(self.config, self.seed)
        for entry in self.entries[:until]:
            state.apply(entry)
        return state


class Worker:
    """An engine and its journal. Nothing moves by itself."""

    seal = staticmethod(plain)

    def __init__(self, log: MemoryLog, **options: object) -> None:
        self.log = log
        self.sent = self.read = 0
        self.away = True
        self.engine = ReuseEngine(log.config, journal=self, **options)

    def open(self, state: SharedState) -> None:
        self.state = state

    def wake(self) -> None:
        pass

    def send(self, most: int = 10_000) -> None:
        for entry in self.state.own_after(self.sent, most=most):
            self.log.append(entry)
            self.sent = entry.number

    def receive(self, most: int = 10_000) -> bool:
        """Read on; a worker that is away has to join first."""
        if self.away:
            self.join()
        entries = self.log.entries[self.read : self.read + most]
        self.read += len(entries)
        return self.state.deliver(entries, every=5)

    def leave(self) -> None:
        self.away = True
        self.state.detach()

    def join(self, log: MemoryLog | None = None) -> None:
        """Take the log's state in place of the own one, and go on from there."""
        self.log = self.log if log is None else log
        self.away = False
        self.read = len(self.log.entries)
        state = self.log.state()
        self.sent = state.numbers.get(self.state.worker, 0)
        self.state.attach(state)


def workers(number: int = 2, **options: object) -> list[Worker]:
    log = MemoryLog(EngineConfig(**options))
    made = [Worker(log) for _ in range(number)]
    for worker in made:
        worker.join()
    return made


def exchange(*made: Worker) -> None:
    for worker in made:
        worker.send()
    for worker in made:
        worker.receive()


def order(worker: Worker, *names: int, **options: object) -> list[int]:
    plan = worker.engine.plan([TEXTS[name] for name in names], remember=False, **options)
    return [names[position] for position in plan.order]


def reuse(worker: Worker, text: str) -> int:
    return worker.engine.expected_reuse(ContextRequest(blocks=[text]))
