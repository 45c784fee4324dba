"""From a list of merges to the tree of contexts: flattened, ordered, numbered (docs: algorithm 4). Pure.

Each node has a content: the blocks common to all contexts below it. A node's *own* blocks are its content without its
parent's; a path of child numbers from the root names it. Leaves are contexts, inner nodes are shared prefixes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contextpilot_core.ordering import by_mean_rank


@dataclass(frozen=True, slots=True)
class MergeTree:
    """A tree of contexts in depth-first order; node 0 is the root, whose content is empty.

    parents: parent's node number (-1 for the root). numbers: child number among the parent's children, which are sorted
    by their first context. own: own blocks in their final order. distances: at which an inner node was made (0.0 for
    leaves and the root). leaves: the leaf of every context; several may share one.
    """

    parents: list[int]
    numbers: list[int]
    own: list[tuple[int, ...]]
    distances: list[float]
    leaves: list[int]


class _Merger:
    """Nodes while they are merged: leaves are 0..n-1, the k-th merge makes node n + k.

    A node whose content equals its parent's is dissolved: its children become the parent's.
    """

    def __init__(self, leaves: Sequence[Sequence[int]]) -> None:
        self.contents: list[frozenset[int]] = [frozenset(leaf) for leaf in leaves]  # emptied when own is known
        self.own: list[frozenset[int]] = [frozenset()] * len(leaves)
        self.firsts = list(range(len(leaves)))
        self.children: list[list[int]] = [[] for _ in leaves]
        self.distances = [0.0] * len(leaves)
        self._leaves = len(leaves)

    def merge(self, left: int, right: int, distance: float) -> None:
        """Add the node over two others."""
        content = self.contents[left] & self.contents[right]
        children: list[int] = []
        for node in (left, right):
            if node < self._leaves or len(self.contents[node]) > len(content):
                self.own[node] = self.contents[node] - content
                children.append(node)
            else:
                smaller, children = sorted((children, self.children[node]), key=len)
                children += smaller  # grows the longer list in place: a long series of merges stays linear
                self.children[node] = []
            self.contents[node] = frozenset()
        self.contents.append(content)
        self.own.append(frozenset())
        self.firsts.append(min(self.firsts[left], self.firsts[right]))
        self.children.append(children)
        self.distances.append(distance)

    def top(self, nodes: Iterable[int]) -> list[int]:
        """Return the children of the root when ``nodes`` are what is left; nodes without content are dissolved."""
        children: list[int] = []
        for node in nodes:
            if node < self._leaves or self.contents[node]:
                self.own[node] = self.contents[node]
                children.append(node)
            else:
                children += self.children[node]
        return children


def build_tree(
    contexts: Sequence[Sequence[int]], leaf_of: Sequence[int], merges: Iterable[tuple[int, int, float]]
) -> MergeTree:
    """Return the tree over ``contexts``.

    leaf_of: by context the number of its leaf; leaves are numbered by first appearance, and the first context of a
    leaf gives its order. merges: (node, node, distance), leaves are 0..n-1, the k-th merge makes node n + k.
    """
    leaves: dict[int, Sequence[int]] = {}
    for context, leaf in zip(contexts, leaf_of, strict=True):
        leaves.setdefault(leaf, context)
    merger = _Merger(list(leaves.values()))
    left_over = dict.fromkeys(range(len(leaves)))
    for left, right, distance in merges:
        merger.merge(left, right, distance)
        del left_over[left], left_over[right]
        left_over[len(merger.contents) - 1] = None
    return _number(merger, list(leaves.values()), merger.top(left_over), leaf_of)


def _number(merger: _Merger, leaves: list[Sequence[int]], top: list[int], leaf_of: Sequence[int]) -> MergeTree:
    """Walk depth-first, children by first context: number the nodes and order their own blocks."""
    tree = MergeTree([-1], [0], [()], [0.0], [])
    place: dict[int, int] = {}  # leaf -> node of the tree
    totals: list[dict[int, int]] = [{}]  # by node of the tree: own block -> sum of its ranks over the members
    first_member: list[Sequence[int]] = [()]
    by_first = merger.firsts.__getitem__
    stack = [(node, 0, number) for number, node in reversed(list(enumerate(sorted(top, key=by_first))))]
    while stack:
        node, parent, number = stack.pop()
        here = len(tree.parents)
        tree.parents.append(parent)
        tree.numbers.append(number)
        tree.distances.append(merger.distances[node])
        own = merger.own[node]
        if node < len(leaves):
            place[node] = here
            tree.own.append(tuple([block for block in leaves[node] if block in own]))
            totals.append({})
            _add_ranks(leaves[node], parent, tree.parents, totals)
        else:
            tree.own.append(())  # known when all members were seen
            totals.append(dict.fromkeys(own, 0))
            children = sorted(merger.children[node], key=by_first)
            stack += [(child, here, number) for number, child in reversed(list(enumerate(children)))]
        first_member.append(leaves[merger.firsts[node]])
    for here, ranks in enumerate(totals):
        if ranks:
            tree.own[here] = by_mean_rank(ranks, first_member[here])
    tree.leaves.extend([place[leaf] for leaf in leaf_of])
    return tree


def _add_ranks(context: Sequence[int], parent: int, parents: list[int], totals: list[dict[int, int]]) -> None:
    """Add the ranks of one member to the sums of all nodes above it."""
    ranks = {block: rank for rank, block in enumerate(context)}
    while parent > 0:
        total = totals[parent]
        for block in total:
            total[block] += ranks[block]
        parent = parents[parent]
