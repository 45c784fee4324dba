"""The paper's tree of contexts: worked examples, invariants, cases P2, P3, P6, P7."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from contextpilot_core.clustering.orders import paper_schedule, prefix_first
from contextpilot_core.clustering.paper.tree import ContextNode, ContextTree
from contextpilot_core.errors import DuplicateRequestError, IntegrityError, RequestError, TooManyContextsError

contexts = st.lists(st.integers(0, 8), max_size=6, unique=True)


def place_of(node: ContextNode) -> tuple[int, ...]:
    """The child numbers from the root to a node."""
    return () if node.parent is None else (*place_of(node.parent), node.number)


def order(tree: ContextTree, ids: list[int]) -> tuple[int, ...]:
    """Algorithm 2: the matched prefix first, then the rest by rank."""
    return prefix_first(ids, tree.matched(ids))


@pytest.fixture
def built() -> ContextTree:
    """The tree of the worked example: C4 = {1, 2} over C1 and C2, C5 = {1} over C4 and C3."""
    tree = ContextTree()
    tree.build({"C1": [2, 1, 3], "C2": [2, 6, 1], "C3": [4, 1, 0]})
    return tree


def test_build(built: ContextTree) -> None:
    assert [built.path(name) for name in ("C1", "C2", "C3")] == [(0, 0, 0), (0, 0, 1), (0, 1)]
    assert len(built) == 3
    assert built.search([1]).own == (1,)
    built.check_integrity()


def test_search_order_and_insert(built: ContextTree) -> None:
    assert place_of(built.search([2, 1, 4])) == (0, 0)
    assert order(built, [2, 1, 4]) == (1, 2, 4)
    assert built.matched([2, 1, 4]) == (1, 2)
    assert built.insert("C6", [2, 1, 4]) == (0, 0, 2)
    assert order(built, [1, 2, 9]) == (1, 2, 9)
    assert built.insert("C8", [1, 2, 9]) == (0, 0, 3)
    assert place_of(built.search([5, 7, 8])) == ()
    assert order(built, [5, 7, 8]) == (5, 7, 8)
    assert built.matched([5, 7, 8]) == ()
    assert built.insert("C7", [5, 7, 8]) == (1,)
    assert paper_schedule([built.path(name) for name in ("C6", "C3", "C7", "C8")]) == [0, 3, 1, 2]
    built.check_integrity()


def test_inner_nodes_win_ties_over_leaves() -> None:
    tree = ContextTree()
    tree.insert("leaf", [1, 8])
    tree.insert("inner", [2, 7])
    tree.insert("second", [2, 6])
    assert tree.path("second") == (1, 1)
    assert place_of(tree.search([2, 1])) == (1,)  # {1, 8} and {2}: half of either is shared
    tree.insert("third", [1, 6, 5])
    assert place_of(tree.search([1, 2])) == (0,)  # both are inner nodes now: the lowest number


def test_an_inner_node_wins_over_an_older_leaf_that_is_exactly_as_near() -> None:
    tree = ContextTree()
    tree.insert("leaf", [8, 1])
    tree.insert("inner", [2, 7])
    tree.insert("second", [2, 6])
    assert place_of(tree.search([2, 1])) == (1,)  # both share one of two blocks, at its own rank


def test_matching_a_leaf_makes_an_inner_node_over_both() -> None:
    tree = ContextTree()
    assert tree.insert("a", [5, 1, 2]) == (0,)
    assert order(tree, [2, 3, 5]) == (5, 2, 3)
    assert tree.insert("b", [2, 3, 5]) == (0, 1)
    assert tree.path("a") == (0, 0)
    assert tree.search([5, 2]).own == (5, 2)
    tree.check_integrity()


def test_an_inner_node_that_is_held_in_part_is_split() -> None:
    tree = ContextTree()
    tree.build({"a": [1, 2, 3, 4], "b": [1, 2, 3, 5]})
    assert order(tree, [9, 3, 1]) == (1, 3, 9)
    assert tree.insert("c", [9, 3, 1]) == (0, 1)
    assert tree.path("a") == (0, 0, 0)
    assert order(tree, [1, 2, 3]) == (1, 3, 2)
    tree.check_integrity()


def test_a_context_equal_to_an_intersection_has_its_own_request(built: ContextTree) -> None:
    assert built.insert("P6", [2, 1]) == (0, 0, 2)
    assert built.insert("again", [1, 2]) == (0, 0, 2)
    assert built.evict("P6")
    assert built.path("again") == (0, 0, 2)
    assert built.evict("again")
    assert built.path("C1") == (0, 0, 0)
    assert not built.evict("again")
    built.check_integrity()


def test_equal_contexts_share_a_leaf_until_the_last_goes() -> None:
    tree = ContextTree()
    assert tree.insert("a", [1, 2]) == tree.insert("b", [1, 2]) == tree.insert("c", [2, 1]) == (0,)
    tree.evict("a")
    assert tree.path("b") == (0,)
    tree.evict("b")
    tree.evict("c")
    assert place_of(tree.search([1, 2])) == ()
    assert len(tree) == 0


def test_child_numbers_are_not_used_again() -> None:
    tree = ContextTree()
    assert tree.insert("a", [1]) == (0,)
    assert tree.insert("b", [2]) == (1,)
    tree.evict("b")
    assert tree.insert("c", [3]) == (2,)


def test_empty_contexts() -> None:
    tree = ContextTree()
    assert order(tree, []) == tree.matched([]) == place_of(tree.search([])) == ()
    assert tree.build({}).orders == ()
    assert tree.build({"first": [], "other": [1]}).orders == ((), (1,))
    assert tree.insert("more", []) == tree.path("first") == (0,)
    tree.check_integrity()
    assert tree.evict("first") and tree.evict("more") and tree.evict("other")
    tree.check_integrity()


def test_errors_change_nothing(built: ContextTree) -> None:
    with pytest.raises(DuplicateRequestError, match="'C1'"):
        built.insert("C1", [8])
    with pytest.raises(RequestError, match="3 requests are live"):
        built.build({"x": [1]})
    with pytest.raises(RequestError, match="'nobody' is not live"):
        built.path("nobody")
    with pytest.raises(TooManyContextsError, match="greedy"):
        ContextTree().build({str(number): [number] for number in range(20_001)})
    assert built.evict("nobody") is False
    assert len(built) == 3
    built.check_integrity()


def test_check_integrity_finds_damage(built: ContextTree) -> None:
    built.search([1]).own = (1, 6)
    with pytest.raises(IntegrityError):
        built.check_integrity()


def replant(node: ContextNode, own: tuple[int, ...]) -> None:
    """Give a node other blocks, and let its parent know."""
    above = node.parent
    assert above is not None
    above.remove(node)
    node.own = own
    above.put(node.number, node)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root, inner, leaf: inner.children.update({7: leaf}), "child 7 of node .* does not know its place"),
        (lambda root, inner, leaf: setattr(inner, "next_number", 0), "does not know its place"),
        (lambda root, inner, leaf: root.holders[1].update({5: None}), r"the index of node \[\] does not match"),
        (lambda root, inner, leaf: root.bare.update({0: None}), r"the index of node \[\] does not match"),
        (lambda root, inner, leaf: replant(leaf, (1, 3)), "holds a block twice"),
        (lambda root, inner, leaf: leaf.requests.clear(), "must have either requests or children"),
        (lambda root, inner, leaf: inner.requests.update({"C1": None}), "must have either requests or children"),
        (lambda root, inner, leaf: leaf.requests.update({"other": None}), "not the requests that are live"),
    ],
)
def test_check_integrity_names_the_damage(built: ContextTree, damage: Callable[..., object], words: str) -> None:
    root, leaf = built.search([]), built.search([1, 2, 3])
    assert leaf.own == (3,)
    damage(root, leaf.parent, leaf)
    with pytest.raises(IntegrityError, match=words):
        built.check_integrity()


def test_an_inner_node_without_blocks_is_found(built: ContextTree) -> None:
    replant(built.search([1, 2]), ())
    with pytest.raises(IntegrityError, match="adds no block, so no search can find it"):
        built.check_integrity()


def test_thousands_of_disjoint_contexts_are_not_scanned() -> None:
    tree = ContextTree()
    for number in range(3_000):
        assert tree.insert(str(number), [2 * number, 2 * number + 1]) == (number,)
    root = tree.search([])
    assert set(root.holders[77]) == {38}  # the index leads to the one child that can match
    assert place_of(tree.search([77, 1_000_000])) == (38,)
    tree.check_integrity()


def test_a_shared_header_evicted_oldest_first() -> None:
    tree = ContextTree()
    for number in range(1_200):
        tree.insert(str(number), [0, number + 1])
    assert {len(tree.path(str(number))) for number in range(1_200)} == {2}
    for number in range(1_200):
        assert tree.evict(str(number))
    assert len(tree) == 0
    root = tree.search([0])
    assert not root.children and not root.holders and not root.bare
    tree.check_integrity()


def test_chains_thousands_deep_need_no_recursion() -> None:
    tree = ContextTree()
    for number in range(1_100):
        tree.insert(str(number), range(number + 1))
    assert len(tree.path("1099")) > 1_000
    tree.check_integrity()
    for number in reversed(range(1_100)):
        assert tree.evict(str(number))
    assert len(tree) == 0


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=2), contexts, max_size=8), st.sampled_from(["average", "complete", "single"]))
def test_build_puts_every_context_where_the_forest_says(given_contexts: dict[str, list[int]], linkage: str) -> None:
    tree = ContextTree(0.01)
    forest = tree.build(given_contexts, linkage=linkage)
    assert [tree.path(name) for name in given_contexts] == list(forest.paths)
    tree.check_integrity()


class Interleavings(RuleBasedStateMachine):
    """Random calls keep the tree whole, and every request keeps its own blocks."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.tree = ContextTree()
        self.live: dict[str, set[int]] = {}
        self.count = 0

    @rule(target=requests, ids=contexts)
    def insert(self, ids: list[int]) -> str:
        name = f"r{self.count}"
        self.count += 1
        matched, ordered = self.tree.matched(ids), order(self.tree, ids)
        assert ordered[: len(matched)] == matched
        assert sorted(ordered) == sorted(ids)
        assert ordered[len(matched) :] == tuple(block for block in ids if block not in matched)
        assert self.tree.insert(name, ids) == self.tree.path(name)
        self.live[name] = set(ids)
        return name

    @rule(name=consumes(requests))
    def evict(self, name: str) -> None:
        assert self.tree.evict(name)
        assert not self.tree.evict(name)
        del self.live[name]

    @rule(data=st.lists(contexts, max_size=5))
    def rebuild(self, data: list[list[int]]) -> None:
        if not self.live:
            self.tree = ContextTree()
            self.tree.build({f"b{number}": ids for number, ids in enumerate(data)})
            for number in range(len(data)):
                self.tree.check_integrity()
                self.tree.evict(f"b{number}")

    @invariant()
    def whole(self) -> None:
        self.tree.check_integrity()
        assert len(self.tree) == len(self.live)
        for name, ids in self.live.items():
            node, blocks = self.tree.search([]), set()
            for number in self.tree.path(name):
                node = node.children[number]
                blocks.update(node.own)
            assert blocks == ids
            assert name in node.requests


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
