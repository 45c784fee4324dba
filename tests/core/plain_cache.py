"""A prefix cache of whole blocks with ticks, as plain as can be (docs: "Replay")."""

from collections.abc import Sequence


class PlainCache:
    """One dict entry per cached prefix, with its last tick; oldest leaves go first, never those of the newest path."""

    def __init__(self, capacity: int, weight: Sequence[int]) -> None:
        self.capacity, self.weight = capacity, weight
        self.ticks: dict[tuple[int, ...], int] = {}
        self.now = 0

    def matched(self, path: Sequence[int]) -> int:
        return max(n for n in range(len(path) + 1) if n == 0 or tuple(path[:n]) in self.ticks)

    def admit(self, path: Sequence[int]) -> None:
        self.now += 1
        for length in range(1, len(path) + 1):
            self.ticks[tuple(path[:length])] = self.now
        while sum(self.weight[prefix[-1]] for prefix in self.ticks) > self.capacity:
            leaves = [p for p in self.ticks if not any(q[: len(p)] == p and q != p for q in self.ticks)]
            leaf = min(leaves, key=lambda prefix: self.ticks[prefix])
            if self.ticks[leaf] == self.now:
                break
            del self.ticks[leaf]
