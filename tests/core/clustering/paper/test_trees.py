"""The paper's trees of one namespace: one behind every head, each request in one of them, and none without any."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.paper.trees import PaperTrees
from contextpilot_core.clustering.values import Arranged
from contextpilot_core.errors import IntegrityError

Path = tuple[int, ...]
HEAD, OTHER = (90,), (90, 91)


def built(**contexts: Path) -> tuple[ContextTree, Arranged]:
    tree = ContextTree()
    return tree, tree.build(contexts)


def test_a_request_is_matched_behind_its_own_head_only():
    trees = PaperTrees(0.001)
    assert trees.matched(HEAD, (1, 2)) == ()
    trees.insert("a", HEAD, (2, 1, 3))
    assert (trees.knows(HEAD), trees.knows(OTHER), trees.knows(())) == (True, False, False)
    assert trees.matched(HEAD, (1, 2)) == (2, 1)
    assert trees.matched(OTHER, (1, 2)) == ()
    trees.check_integrity()


def test_repeats_of_a_block_count_once_and_empty_contexts_not_at_all():
    trees = PaperTrees(0.001)
    trees.insert("empty", HEAD, ())
    assert not trees.knows(HEAD)
    trees.insert("a", HEAD, (1, 2, 1))
    assert trees.matched(HEAD, (2, 1)) == (1, 2)
    trees.check_integrity()


def test_a_request_that_is_in_a_tree_stays_where_it_is():
    trees = PaperTrees(0.001)
    trees.insert("a", HEAD, (1, 2))
    trees.insert("a", OTHER, (3,))
    assert not trees.knows(OTHER)
    trees.leave("a")
    assert not trees.knows(HEAD)
    trees.leave("a")
    trees.leave("nobody")
    trees.check_integrity()


def test_the_tree_that_was_built_for_a_batch_is_taken_over():
    trees = PaperTrees(0.001)
    tree, arranged = built(a=(2, 1, 3), b=(2, 6, 1))
    assert trees.arrange(HEAD, {"a": (2, 1, 3), "b": (2, 6, 1)}, (tree, arranged)) is arranged
    assert trees.matched(HEAD, (1, 2, 9)) == (2, 1)
    trees.insert("a", OTHER, (1,))  # it is in a tree already
    assert not trees.knows(OTHER)
    trees.leave("a")
    trees.check_integrity()
    assert trees.matched(HEAD, (3,)) == ()
    trees.leave("b")
    assert not trees.knows(HEAD)


def test_a_batch_behind_a_known_head_goes_into_the_tree_that_is_there():
    """By hand: over 1 2 3 and 2 1 4 comes a node [1 2], and the third is one more child of it."""
    trees = PaperTrees(0.001)
    trees.insert("old", HEAD, (1, 2, 3))
    contexts = {"x": (2, 1, 4), "y": (5, 2, 1), "z": (7,)}
    late = built(x=(2, 1, 4), y=(5, 2, 1), z=(7,))
    found = trees.arrange(HEAD, contexts, late)  # too late: another request was faster
    assert found.orders == [(1, 2, 4), (1, 2, 5), (7,)]
    assert found.shared == [2, 2, 0]  # what each finds in the tree before any of them is in it
    assert found.paths == [(0, 1), (0, 2), (1,)]
    assert trees.matched(HEAD, (1, 2, 4)) == (1, 2, 4)
    trees.check_integrity()


def test_paths_are_those_of_the_tree_when_all_are_in_it():
    trees = PaperTrees(0.001)
    found = trees.arrange(HEAD, {"a": (1, 2), "b": (1, 3)}, None)
    assert found.paths == [(0, 0), (0, 1)]  # the second one lengthened the path of the first
    assert (found.orders, found.shared) == ([(1, 2), (1, 3)], [0, 0])
    trees.check_integrity()


def test_only_the_living_are_kept():
    trees = PaperTrees(0.001)
    for number, head in enumerate((HEAD, HEAD, OTHER)):
        trees.insert(f"r{number}", head, (number, 7))
    trees.keep_only({"r1"}.__contains__)
    assert (trees.knows(HEAD), trees.knows(OTHER)) == (True, False)
    assert trees.matched(HEAD, (0, 1, 7)) in ((1, 7), (7, 1))
    trees.check_integrity()
    trees.keep_only(lambda request_id: False)
    assert not trees.knows(HEAD)


heads = st.sampled_from([(), HEAD, OTHER])
contexts = st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)
names = st.integers(0, 6).map("r{}".format)


class Trees(RuleBasedStateMachine):
    """Against a table of which request is behind which head."""

    def __init__(self) -> None:
        super().__init__()
        self.trees = PaperTrees(0.001)
        self.live: dict[str, tuple[Path, Path]] = {}

    @rule(name=names, head=heads, context=contexts)
    def insert(self, name: str, head: Path, context: Path) -> None:
        self.trees.insert(name, head, context)
        if context:
            self.live.setdefault(name, (head, context))

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.trees.leave(name)
        self.live.pop(name, None)

    @rule(head=heads, batch=st.dictionaries(names, contexts, min_size=1, max_size=4), fresh=st.booleans())
    def arrange(self, head: Path, batch: dict[str, Path], fresh: bool) -> None:
        batch = {name: context for name, context in batch.items() if name not in self.live}
        if batch:
            found = self.trees.arrange(head, batch, built(**batch) if fresh else None)
            self.live.update({name: (head, context) for name, context in batch.items()})
            assert [sorted(order) for order in found.orders] == [sorted(context) for context in batch.values()]
            assert all(shared <= len(order) for shared, order in zip(found.shared, found.orders, strict=True))

    @rule(gone=st.sets(names))
    def keep_only(self, gone: set[str]) -> None:
        self.trees.keep_only(lambda name: name not in gone)
        self.live = {name: place for name, place in self.live.items() if name not in gone}

    @invariant()
    def whole(self) -> None:
        self.trees.check_integrity()
        behind = {head for head, _ in self.live.values()}
        for head in ((), HEAD, OTHER):
            assert self.trees.knows(head) == (head in behind)
            held = {block for at, context in self.live.values() if at == head for block in context}
            for block in range(6):
                assert self.trees.matched(head, (block,)) in ((), (block,))
                assert block in held or self.trees.matched(head, (block,)) == ()


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_integrity_check_sees_a_request_too_many_and_reaches_the_trees():
    trees = PaperTrees(0.001)
    trees.insert("a", HEAD, (1, 2))
    trees._tree_of["b"] = HEAD
    with pytest.raises(IntegrityError, match="a request of the paper's trees is not recorded, or the reverse"):
        trees.check_integrity()
    del trees._tree_of["b"]
    trees._tree_of["a"] = OTHER
    with pytest.raises(IntegrityError, match="not recorded"):
        trees.check_integrity()
    trees._tree_of["a"] = HEAD
    trees._trees[OTHER] = ContextTree()
    with pytest.raises(IntegrityError, match="not recorded"):
        trees.check_integrity()
    del trees._trees[OTHER]
    trees._trees[HEAD].search((1, 2)).requests.clear()
    with pytest.raises(IntegrityError, match="requests"):
        trees.check_integrity()
