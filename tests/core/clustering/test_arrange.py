"""A batch arranged: groups, block ids made dense and back, the schedule, and what each request leads with."""

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.clustering.arrange import arrange, dense, group, leads, schedule
from contextpilot_core.clustering.merging import greedy_forest
from contextpilot_core.clustering.values import Arranged, Lead
from contextpilot_core.config import Schedule

IDS = [50, 20, 90, 7, 33, 1_000_000]
WEIGHTS = dict(zip(IDS, [10, 20, 30, 40, 5, 8], strict=True))
contexts = st.lists(st.lists(st.sampled_from(IDS), max_size=5, unique=True).map(tuple), min_size=1, max_size=8)
Path = tuple[int, ...]


@given(st.lists(st.one_of(st.sampled_from("ab"), st.tuples(st.sampled_from("ab"), st.none()))))
def test_equal_keys_stand_together(keys: list[Hashable]):
    groups = group(keys)
    assert sorted(position for members in groups for position in members) == list(range(len(keys)))
    assert [keys[members[0]] for members in groups] == list(dict.fromkeys(keys))
    for members in groups:
        assert members == sorted(members)
        assert len({keys[position] for position in members}) == 1


def test_ids_are_renumbered_by_first_appearance():
    assert dense([(50, 20), (), (90, 50)], WEIGHTS) == ([[0, 1], [], [2, 0]], [10, 20, 30], [50, 20, 90])
    assert dense([], {}) == ([], [], [])


def test_a_batch_by_hand():
    """The first two share 20 and 90 (50 tokens), the third shares 20 with both; 90 has the better mean rank."""
    found = arrange([(50, 90, 20), (90, 20, 33), (7, 20), (1_000_000,)], WEIGHTS)
    assert found.orders == [(20, 90, 50), (20, 90, 33), (20, 7), (1_000_000,)]
    assert found.paths == ((0, 0, 0), (0, 0, 1), (0, 1), (1,))
    assert found.shared == (2, 2, 1, 0)


def test_one_context_stays_as_it_is():
    assert arrange([(90, 50, 20)], WEIGHTS) == Arranged([(90, 50, 20)], [(0,)], [0])


@settings(deadline=None)
@given(contexts)
def test_orders_are_those_of_the_forest_whatever_the_ids(given_contexts: list[Path]):
    found = arrange(given_contexts, WEIGHTS)
    numbers = {block: number for number, block in enumerate(IDS)}
    forest = greedy_forest(
        [[numbers[block] for block in context] for context in given_contexts], list(WEIGHTS.values())
    )
    assert [tuple(numbers[block] for block in order) for order in found.orders] == list(forest.orders)
    assert (tuple(found.paths), tuple(found.shared)) == (forest.paths, forest.shared)


def arranged(*paths: Path) -> Arranged:
    return Arranged([()] * len(paths), paths, [0] * len(paths))


@pytest.mark.parametrize(
    ("how", "sequence"),
    [("arrival", [0, 1, 2, 3, 4]), ("depth-first", [2, 0, 4, 3, 1]), ("paper", [0, 4, 2, 3, 1])],
)
def test_groups_go_one_after_the_other_and_inside_by_their_paths(how: Schedule, sequence: list[int]):
    # "depth-first" goes by path alone, "paper" to the longer path first
    groups, results = [[0, 2, 4], [1, 3]], [arranged((1, 0), (0,), (1, 1)), arranged((1,), (0,))]
    assert schedule(groups, results, [None] * 5, how) == sequence


def test_turns_of_a_session_take_its_places_in_their_order():
    groups, results = [[0, 1, 2, 3]], [arranged((3,), (2,), (1,), (0,))]
    assert schedule(groups, results, ["a", None, "a", "a"], "depth-first") == [0, 2, 1, 3]


KV = 16


def test_a_family_and_a_loner_lead_by_hand():
    """50 tokens are common to the first two in time, 20 to the last two of them: in KV blocks 48 and 16."""
    found = arrange([(50, 90, 20), (90, 20, 33), (7, 20), (1_000_000,)], WEIGHTS)
    proposals = leads([[0, 1, 2, 3]], [found], [0, 1, 2, 3], [WEIGHTS], KV)
    assert proposals == [Lead((20, 90), 48), Lead((20, 90), 48), Lead((20,), 16), Lead((), 0)]
    apart = leads([[0, 1, 2, 3]], [found], [0, 2, 3, 1], [WEIGHTS], KV)
    assert apart == [Lead((20, 90), 16), Lead((20, 90), 0), Lead((20,), 16), Lead((), 0)]


def test_groups_share_nothing_even_where_their_ids_are_equal():
    one = Arranged([(20, 90)], [(0,)], [0])
    assert leads([[0], [1]], [one, one], [0, 1], [WEIGHTS, WEIGHTS], KV) == [Lead((), 0), Lead((), 0)]


@settings(deadline=None)
@given(contexts, st.integers(1, 20), st.data())
def test_a_lead_is_worth_what_it_shares_with_a_neighbour_in_time(
    given_contexts: list[Path], kv_block: int, data: st.DataObject
):
    keys = data.draw(st.lists(st.integers(0, 1), min_size=len(given_contexts), max_size=len(given_contexts)))
    sequence = data.draw(st.permutations(range(len(given_contexts))))
    groups = group(keys)
    results = [arrange([given_contexts[position] for position in members], WEIGHTS) for members in groups]
    order = {p: found.orders[n] for members, found in zip(groups, results, strict=True) for n, p in enumerate(members)}
    proposals = leads(groups, results, sequence, [WEIGHTS] * len(groups), kv_block)
    for place, position in enumerate(sequence):
        worth = [0]
        for neighbour in sequence[max(0, place - 1) : place] + sequence[place + 1 : place + 2]:
            if keys[neighbour] == keys[position]:
                pairs = list(zip(order[position], order[neighbour], strict=False))
                common = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
                worth.append(sum(WEIGHTS[block] for block in order[position][:common]))
        lead = proposals[position]
        assert lead.promise == max(worth) // kv_block * kv_block
        assert order[position][: len(lead.blocks)] == lead.blocks
