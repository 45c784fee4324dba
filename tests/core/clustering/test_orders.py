"""The order inside a context."""

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.clustering.orders import by_mean_rank, prefix_first

ids = st.lists(st.integers(0, 9), max_size=8, unique=True)


def test_worked_examples() -> None:
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
