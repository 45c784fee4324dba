"""The order inside a context, and of requests: algorithms 2 and 5, depth-first, and the order of turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.clustering.orders import (
    by_mean_rank,
    depth_first,
    keep_session_order,
    paper_schedule,
    prefix_first,
)

Path = tuple[int, ...]

paths = st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), max_size=9)
ids = st.lists(st.integers(0, 9), max_size=8, unique=True)


def test_worked_examples_of_orders() -> None:
    assert prefix_first([2, 1, 4], [1, 2]) == (1, 2, 4)
    assert prefix_first([1, 2, 9], [1, 2]) == (1, 2, 9)
    assert prefix_first([5, 7, 8], []) == (5, 7, 8)


def test_blocks_that_the_request_lacks_are_left_out() -> None:
    assert prefix_first([4, 1], [9, 1, 8]) == (1, 4)


@given(ids, ids)
def test_order_is_a_permutation_that_keeps_both_rankings(request: list[int], prefix: list[int]) -> None:
    order = prefix_first(request, prefix)
    matched = [block for block in prefix if block in request]
    assert sorted(order) == sorted(request)
    assert list(order[: len(matched)]) == matched
    assert list(order[len(matched) :]) == [block for block in request if block not in matched]


def test_mean_rank_then_first_appearance() -> None:
    members = [[7, 1, 2, 3], [3, 2, 1]]
    totals = {block: sum(member.index(block) for member in members) for block in (1, 2, 3)}
    assert totals == {1: 3, 2: 3, 3: 3}
    assert by_mean_rank(totals, members[0]) == (1, 2, 3)
    assert by_mean_rank({1: 4, 2: 3}, [1, 2]) == (2, 1)
    assert by_mean_rank({}, [1, 2]) == ()


C6, C3, C7, C8 = (0, 0, 2), (0, 1), (1,), (0, 0, 3)


def test_worked_example_of_schedules() -> None:
    assert paper_schedule([C6, C3, C7, C8]) == [0, 3, 1, 2]
    assert depth_first([C6, C3, C7, C8]) == [0, 3, 1, 2]


def test_paper_larger_groups_first_and_no_path_last() -> None:
    assert paper_schedule([(), (3,), (1, 0), (), (1, 2), (2,)]) == [2, 4, 5, 1, 0, 3]


def test_paper_longer_paths_first_then_lexicographic() -> None:
    assert paper_schedule([(0, 1), (0, 0, 1), (0, 0), (0, 0, 0)]) == [3, 1, 2, 0]


def test_depth_first_is_lexicographic_and_stable() -> None:
    assert depth_first([(1,), (0, 1), (0,), (0, 1), ()]) == [4, 2, 1, 3, 0]


@pytest.mark.parametrize("schedule", [paper_schedule, depth_first])
@given(given_paths=paths)
def test_schedules_are_permutations(schedule: object, given_paths: list[Path]) -> None:
    assert callable(schedule)
    assert sorted(schedule(given_paths)) == list(range(len(given_paths)))


@given(paths)
def test_both_keep_the_first_branches_together(given_paths: list[Path]) -> None:
    for schedule in (paper_schedule, depth_first):
        branches = [given_paths[position][0] for position in schedule(given_paths) if given_paths[position]]
        runs = [branch for place, branch in enumerate(branches) if place == 0 or branches[place - 1] != branch]
        assert len(runs) == len(set(runs))


def test_turns_of_a_session_stay_in_order_in_their_slots() -> None:
    sessions = ["a", None, "b", "a", None, "b", "a"]
    assert keep_session_order([6, 5, 4, 3, 2, 1, 0], sessions) == [0, 2, 4, 3, 5, 1, 6]


@given(st.permutations(range(8)), st.lists(st.sampled_from([None, "a", "b"]), min_size=8, max_size=8))
def test_sessions_in_order_and_slots_kept(schedule: list[int], sessions: list[str | None]) -> None:
    result = keep_session_order(schedule, sessions)
    assert sorted(result) == list(range(8))
    assert [sessions[position] for position in result] == [sessions[position] for position in schedule]
    for session in ("a", "b"):
        turns = [position for position in result if sessions[position] == session]
        assert turns == sorted(turns)


def test_nothing_stays_nothing() -> None:
    assert depth_first([]) == paper_schedule([]) == keep_session_order([], []) == []
