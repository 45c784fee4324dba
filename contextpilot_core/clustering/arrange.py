"""Arrange a batch: which blocks each request should lead with, and in which order to send the requests. Pure."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import takewhile

from contextpilot_core.cache import Path
from contextpilot_core.clustering.merging import greedy_forest
from contextpilot_core.clustering.orders import depth_first, keep_session_order, paper_schedule
from contextpilot_core.clustering.values import Arranged, Lead
from contextpilot_core.config import Schedule


def group(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the positions of equal keys together, groups and members in input order."""
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return list(groups.values())


def dense(contexts: Sequence[Path], weights: Mapping[int, int]) -> tuple[list[list[int]], list[int], list[int]]:
    """Renumber block ids as 0..n-1 by first appearance: (contexts, weights, the ids behind the numbers)."""
    numbers: dict[int, int] = {}
    renumbered = [[numbers.setdefault(block, len(numbers)) for block in context] for context in contexts]
    ids = list(numbers)
    return renumbered, [weights[block] for block in ids], ids


def arrange(contexts: Sequence[Path], weights: Mapping[int, int]) -> Arranged:
    """Order contexts by greedy merging (docs: "Offline: merge by what is really saved")."""
    if len(contexts) == 1:
        return Arranged(list(contexts), [(0,)], [0])
    renumbered, tokens, ids = dense(contexts, weights)
    forest = greedy_forest(renumbered, tokens)
    orders = [tuple([ids[number] for number in order]) for order in forest.orders]
    return Arranged(orders, forest.paths, forest.shared)


def schedule(
    groups: Sequence[Sequence[int]],
    arranged: Sequence[Arranged],
    sessions: Sequence[Hashable | None],
    how: Schedule,
) -> list[int]:
    """Return the input positions in execution order; the turns of one session keep their order.

    Groups share no prefix, so each stays together: first come, first served.
    """
    if how == "arrival":
        return list(range(len(sessions)))
    order: Callable[[Sequence[Path]], list[int]] = paper_schedule if how == "paper" else depth_first
    slots = [members[place] for members, result in zip(groups, arranged, strict=True) for place in order(result.paths)]
    return keep_session_order(slots, sessions)


def leads(
    groups: Sequence[Sequence[int]],
    arranged: Sequence[Arranged],
    sequence: Sequence[int],
    weights: Sequence[Mapping[int, int]],
    kv_block: int,
) -> list[Lead]:
    """Return, per request, its shared prefix, worth the most tokens it shares with a neighbour in the schedule.

    ``weights``: tokens by block id, per group. The first of a family reuses nothing itself, but what the next one
    reuses is owed to the order of the first.
    """
    group_of = [0] * len(sequence)
    order_of: list[Path] = [()] * len(sequence)
    shared_of = [0] * len(sequence)
    for number, (members, result) in enumerate(zip(groups, arranged, strict=True)):
        for place, position in enumerate(members):
            group_of[position] = number
            order_of[position] = result.orders[place]
            shared_of[position] = result.shared[place]
    common = [0] * (len(sequence) + 1)  # common[i]: tokens that places i - 1 and i of the schedule share
    for place in range(1, len(sequence)):
        before, after = sequence[place - 1], sequence[place]
        if group_of[before] == group_of[after]:
            common[place] = _common_tokens(order_of[before], order_of[after], weights[group_of[after]])
    proposals = [Lead()] * len(sequence)
    for place, position in enumerate(sequence):
        promise = max(common[place], common[place + 1]) // kv_block * kv_block
        proposals[position] = Lead(order_of[position][: shared_of[position]], promise)
    return proposals


def _common_tokens(first: Path, second: Path, weights: Mapping[int, int]) -> int:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(weights[block] for block, _ in same)
