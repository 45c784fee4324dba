"""The order in which the requests of a batch are sent (docs: "Schedule"; algorithm 5). All return input positions.

A path names the branch of the tree of contexts that a request belongs to: child numbers from the root.
"""

from collections import deque
from collections.abc import Hashable, Sequence


def arrival(count: int) -> list[int]:
    """Return ``count`` requests as they came."""
    return list(range(count))


def depth_first(paths: Sequence[Sequence[int]]) -> list[int]:
    """Return the requests lexicographically by path, so that each branch is finished before the next begins."""
    keys = [tuple(path) for path in paths]
    return sorted(range(len(keys)), key=keys.__getitem__)


def paper_schedule(paths: Sequence[Sequence[int]]) -> list[int]:
    """Return the requests grouped by the first path element: larger groups first, ties by that element.

    Inside a group longer paths come first, ties lexicographically. A request without a path shares nothing: each is a
    group of its own, and they come last.
    """
    keys = [tuple(path) for path in paths]
    groups: dict[int, list[int]] = {}
    for position, path in enumerate(keys):
        if path:
            groups.setdefault(path[0], []).append(position)
    schedule: list[int] = []
    for _, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        schedule += sorted(members, key=lambda position: (-len(keys[position]), keys[position]))
    return schedule + [position for position, path in enumerate(keys) if not path]


def keep_session_order(schedule: Sequence[int], sessions: Sequence[Hashable | None]) -> list[int]:
    """Return ``schedule`` with the requests of each session in input order, in the places that the session holds.

    ``sessions``: by input position; None is no session.
    """
    turns: dict[Hashable, list[int]] = {}
    for position in sorted(schedule):
        if sessions[position] is not None:
            turns.setdefault(sessions[position], []).append(position)
    waiting = {session: deque(positions) for session, positions in turns.items()}
    return [position if sessions[position] is None else waiting[sessions[position]].popleft() for position in schedule]
