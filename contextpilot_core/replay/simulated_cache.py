"""The prefix cache of a serving engine, simulated, apart from what a reuse engine believes of it (docs: "Replay")."""

import sys
from collections.abc import Mapping, Sequence

from contextpilot_core.cache import BlockTable, CacheView


class SimulatedCache:
    """A radix tree over whole blocks; all nodes of a path get one tick.

    Prompts are inserted, then the oldest leaves leave until it is within ``capacity`` tokens (None: unbounded), but
    never the path just used. ``weights`` are the tokens of every body that is sent.
    """

    def __init__(self, weights: Mapping[str, int], *, capacity: int | None) -> None:
        self._blocks = BlockTable()
        self._view = CacheView(self._blocks, capacity=capacity, max_requests=sys.maxsize)
        self._weights = weights

    def send(self, bodies: Sequence[str]) -> int:
        """Return the tokens of a prompt that are cached, then put all of it into the cache."""
        path = self._blocks.intern_path((body.encode("utf-8", "surrogatepass"), self._weights[body]) for body in bodies)
        matched = sum(self._blocks.tokens[block] for block in path[: self._view.cached_blocks(path)])
        self._view.admit(path)
        self._blocks.release(path)
        return matched
