"""Running totals of a namespace, or of an engine."""

from dataclasses import dataclass, fields

from contextpilot_core.plan import Job
from contextpilot_core.types import Observation


@dataclass
class Counters:
    """Sums since the engine was made or reset; tokens are block tokens but ``note_tokens``."""

    planned: int = 0
    committed: int = 0
    abandoned: int = 0
    expired: int = 0
    block_tokens: int = 0
    expected_reused_tokens: int = 0
    note_tokens: int = 0
    hinted_tokens: int = 0
    dropped_blocks: int = 0
    evictions: int = 0
    compared: int = 0
    unreported: int = 0
    prompt_tokens: int = 0
    predicted_tokens: int = 0
    reported_tokens: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        """Return the sums of both."""
        return Counters(*[getattr(self, each.name) + getattr(other, each.name) for each in fields(self)])

    def add(self, job: Job) -> None:
        """Count one request that was planned."""
        self.planned += 1
        self.committed += job.state == "committed"
        self.block_tokens += job.block_tokens
        self.expected_reused_tokens += job.expected_tokens
        self.note_tokens += job.note_tokens
        self.hinted_tokens += job.hinted_tokens
        self.dropped_blocks += len(job.repeats)

    def observed(self, observation: Observation, prompt_tokens: int | None) -> None:
        """Count one response."""
        if observation.reported is None:
            self.unreported += 1
        elif observation.predicted is not None:
            self.compared += 1
            self.prompt_tokens += prompt_tokens or 0
            self.predicted_tokens += observation.predicted
            self.reported_tokens += observation.reported
