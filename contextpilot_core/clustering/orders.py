"""The order of the blocks inside one context (docs: "Order"; algorithm 2), and of requests (docs: "Schedule").

Positions are 0-based.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence


def prefix_first(ids: Sequence[int], prefix: Sequence[int]) -> tuple[int, ...]:
    """Return ``ids`` with those that stand in ``prefix`` first, in its order, then the rest in the given ranking.

    Blocks of ``prefix`` that the request does not have are left out.
    """
    wanted = set(ids)
    head = [block for block in prefix if block in wanted]
    wanted.difference_update(head)
    return (*head, *[block for block in ids if block in wanted])


def by_mean_rank(total_ranks: Mapping[int, int], first_member: Sequence[int]) -> tuple[int, ...]:
    """Return an inner node's own blocks by mean rank over its members, ties by first appearance.

    ``total_ranks``: own block -> sum of its ranks over all members. All members hold every own block, hence the sums
    order like the means. ``first_member``: the first member's context, in which all of them appear.
    """
    own = [block for block in first_member if block in total_ranks]
    own.sort(key=total_ranks.__getitem__)  # stable: ties keep the order of appearance
    return tuple(own)


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
