"""Running totals of an engine."""

from dataclasses import dataclass

from contextpilot_core.plan import Plan


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

    def add(self, plan: Plan, block_tokens: int, hinted_tokens: int, *, committed: bool) -> None:
        """Count one plan; ``block_tokens`` are sent in full, ``hinted_tokens`` were replaced by hints."""
        self.planned += 1
        self.committed += committed
        self.block_tokens += block_tokens
        self.expected_reused_tokens += plan.expected_reused_tokens
        self.note_tokens += plan._choice.note_tokens
        self.hinted_tokens += hinted_tokens
        self.dropped_blocks += len(plan.dropped)
