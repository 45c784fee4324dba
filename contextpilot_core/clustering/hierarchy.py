"""From a list of merges to the tree of contexts: flattened, ordered, numbered (docs: algorithm 4). Pure.

Each node has a content: the blocks common to all contexts below it. A node's *own* blocks are its content without its
parent's; a path of child numbers from the root names it. Leaves are contexts, inner nodes are shared prefixes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from contextpilot_core.clustering.orders import by_mean_rank
from contextpilot_core.clustering.values import Arranged


@dataclass(frozen=True, slots=True)
class MergeTree:
    """A tree of contexts in depth-first order; node 0 is the root, whose content is empty.

    parents: parent's node number (-1 for the root). numbers: child number among the parent's children, which are sorted
    by their first context. own: own blocks in their final order. leaves: the leaf of every context; several may share
    one.
    """

    parents: list[int]
    numbers: list[int]
    own: list[tuple[int, ...]]
    leaves: list[int]


class _Merger:
    """Nodes while they are merged: leaves are 0..n-1, the k-th merge makes node n + k.

    A node whose content equals its parent's is dissolved: its children become the parent's.
    """

    def __init__(self, leaves: Sequence[Sequence[int]]) -> None:
        self.leaves = leaves
        self.firsts = list(range(len(leaves)))  # by node: its smallest leaf
        self.contents: list[frozenset[int]] = []  # of inner nodes
        self.children: list[list[int]] = []

    def merge(self, left: int, right: int) -> None:
        """Add the node over two others."""
        content = self.content(left) & self.content(right)
        children: list[int] = []
        for node in (left, right):
            inner = node - len(self.leaves)
            if inner < 0 or len(self.contents[inner]) > len(content):
                children.append(node)
            else:
                smaller, children = sorted((children, self.children[inner]), key=len)
                children += smaller  # grows the longer list in place: a long series of merges stays linear
        self.contents.append(content)
        self.children.append(children)
        self.firsts.append(min(self.firsts[left], self.firsts[right]))

    def content(self, node: int) -> frozenset[int]:
        """Return the blocks that all leaves below a node have."""
        inner = node - len(self.leaves)
        return frozenset(self.leaves[node]) if inner < 0 else self.contents[inner]

    def top(self, nodes: Iterable[int]) -> list[int]:
        """Return the children of the root when ``nodes`` are what is left; nodes without content are dissolved."""
        children: list[int] = []
        for node in nodes:
            inner = node - len(self.leaves)
            children += [node] if inner < 0 or self.contents[inner] else self.children[inner]
        return children


def build_tree(leaves: Sequence[Sequence[int]], leaf_of: Sequence[int], merges: Iterable[tuple[int, int]]) -> MergeTree:
    """Return the tree over distinct contexts.

    leaves: the contexts, each in its ranking. leaf_of: by context of the caller, the leaf it shares with its equals.
    merges: (node, node); leaves are the nodes 0..n-1, the k-th merge makes node n + k.
    """
    merger = _Merger(leaves)
    left_over = dict.fromkeys(range(len(leaves)))
    for made, (left, right) in enumerate(merges, start=len(leaves)):
        merger.merge(left, right)
        del left_over[left], left_over[right]
        left_over[made] = None
    return _number(merger, merger.top(left_over), leaf_of)


def _number(merger: _Merger, top: list[int], leaf_of: Sequence[int]) -> MergeTree:
    """Walk depth-first, children by first context: number the nodes and order their own blocks."""
    leaves = merger.leaves
    tree = MergeTree([-1], [0], [()], [])
    place: dict[int, int] = {}  # leaf -> node of the tree
    contents: dict[int, frozenset[int]] = {0: frozenset()}  # inner node of the tree -> its blocks
    totals: dict[int, dict[int, int]] = {}  # inner node of the tree -> own block -> sum of its ranks over the members
    members: dict[int, int] = {}  # inner node of the tree -> its first leaf
    stack: list[tuple[int, int, int]] = []

    def visit_later(children: list[int], parent: int) -> None:
        children.sort(key=merger.firsts.__getitem__, reverse=True)
        stack.extend(zip(children, repeat(parent), range(len(children) - 1, -1, -1)))

    visit_later(top, 0)
    while stack:
        node, parent, number = stack.pop()
        here = len(tree.parents)
        tree.parents.append(parent)
        tree.numbers.append(number)
        above = contents[parent]
        if node < len(leaves):
            place[node] = here
            tree.own.append(tuple([block for block in leaves[node] if block not in above]))
            _add_ranks(leaves[node], parent, tree.parents, totals)
        else:
            inner = node - len(leaves)
            tree.own.append(())  # known when all members were seen
            contents[here] = merger.contents[inner]
            totals[here] = dict.fromkeys(contents[here] - above, 0)
            members[here] = merger.firsts[node]
            visit_later(merger.children[inner], here)
    for here, ranks in totals.items():
        tree.own[here] = by_mean_rank(ranks, leaves[members[here]])
    tree.leaves.extend([place[leaf] for leaf in leaf_of])
    return tree


def _add_ranks(context: Sequence[int], parent: int, parents: list[int], totals: dict[int, dict[int, int]]) -> None:
    """Add the ranks of one member to the sums of all nodes above it."""
    ranks = {block: rank for rank, block in enumerate(context)}
    while parent:
        total = totals[parent]
        for block in total:
            total[block] += ranks[block]
        parent = parents[parent]


def forest_of(tree: MergeTree) -> Arranged:
    """Return what a tree says about each of its contexts, in input order.

    Shared are the blocks of the leaf's parent, or all of them when several contexts share the leaf.
    """
    orders: list[tuple[int, ...]] = [()]
    paths: list[tuple[int, ...]] = [()]
    for parent, number, own in zip(tree.parents[1:], tree.numbers[1:], tree.own[1:], strict=True):
        orders.append(orders[parent] + own)
        paths.append((*paths[parent], number))
    members = np.bincount(np.asarray(tree.leaves, dtype=np.int64), minlength=1).tolist()
    shared = [len(orders[leaf]) - (len(tree.own[leaf]) if members[leaf] == 1 else 0) for leaf in tree.leaves]
    return Arranged(
        tuple([orders[leaf] for leaf in tree.leaves]), tuple([paths[leaf] for leaf in tree.leaves]), tuple(shared)
    )


def distinct(
    contexts: Sequence[Sequence[int]], kind: Callable[[Sequence[int]], Hashable]
) -> tuple[list[Sequence[int]], list[int]]:
    """Return the leaves, the first contexts of their ``kind`` (equal lists, or equal sets), and the leaf of each."""
    keys = [kind(context) for context in contexts]
    firsts = dict(zip(reversed(keys), reversed(contexts), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [firsts[key] for key in numbers], [numbers[key] for key in keys]
