"""What clustering hands on."""

from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core.cache import Path


@dataclass(frozen=True, slots=True)
class Lead:
    """Blocks that should come first, and the tokens that following them is worth even if they are not cached."""

    blocks: Path = ()
    promise: int = 0


@dataclass(frozen=True, slots=True)
class Arranged:
    """Contexts in an order together: final orders, tree paths, and how many leading blocks of each are shared."""

    orders: Sequence[Path]
    paths: Sequence[Path]
    shared: Sequence[int]
