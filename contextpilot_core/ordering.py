"""The order of the blocks inside one context (docs: "Order"; algorithm 2). Positions are 0-based ranks."""

from collections.abc import Mapping, Sequence


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
