"""What a hook notes in metadata, and what it means for the order of relevance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_integrations.reorder.ranks import PLACE, RANK, SOURCES, relevance_order, without_own


def noted(*pairs):
    return [{RANK: rank, PLACE: place} for rank, place in pairs]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), unique=True, max_size=6), st.data())
def test_the_ranks_bring_back_the_order_of_relevance(ranks, data):
    given_back = noted(*[(rank, place) for place, rank in enumerate(ranks)])
    kept = [each for each in given_back if data.draw(st.booleans())]  # a filter may stand behind the hook
    back = relevance_order(kept)
    assert [kept[position][RANK] for position in back] == sorted(each[RANK] for each in kept)


@pytest.mark.parametrize(
    "metadata",
    [
        noted((0, 1), (1, 0)),  # somebody has moved them
        noted((1, 0), (0, 1), (1, 0), (0, 1)),  # two answers of hooks, one behind the other
        noted((1, 0), (1, 1)),
        noted((1, 0), ("0", 1)),
        noted((1, 0), (0, None)),
        [*noted((1, 0)), {"source": "a.pdf"}],
        [{RANK: 1}, {RANK: 0}],
        [],
    ],
)
def test_what_does_not_come_straight_from_a_hook_counts_as_it_stands(metadata):
    assert relevance_order(metadata) == tuple(range(len(metadata)))


def test_metadata_as_they_were():
    assert without_own({RANK: 1, PLACE: 0, SOURCES: [], "source": "a.pdf"}) == {"source": "a.pdf"}
