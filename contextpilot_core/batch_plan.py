"""The plans of many requests, and the order in which to send them."""

from collections.abc import Iterator
from dataclasses import dataclass

from contextpilot_core.plan import Plan


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Plans in input order, and ``schedule``: the input positions in the order in which to send them."""

    plans: tuple[Plan, ...]
    schedule: tuple[int, ...]

    def in_schedule(self) -> Iterator[Plan]:
        """Yield the plans in the order in which to send them."""
        return (self.plans[position] for position in self.schedule)

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)
