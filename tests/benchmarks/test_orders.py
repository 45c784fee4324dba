"""The orders that ours is compared with: tiny cases by hand, and nothing gets lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.orders import Faults, Sent, by_frequency, by_greedy_groups, faults, in_arrival

CONTEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1, max_size=6), max_size=12)
WEIGHTS = {letter: 10 + 7 * number % 5 for number, letter in enumerate("abcdefgh")}


def test_frequency_decides_then_first_appearance():
    # b: 3 contexts; a and c: 2 each, a came first
    sent = by_frequency([["a", "b"], ["c", "b"], ["c", "d", "a", "b"]])
    assert sent == [Sent(0, ("b", "a")), Sent(2, ("b", "a", "c", "d")), Sent(1, ("b", "c"))]


def test_the_greedy_group_is_the_longest_text_in_the_most_rows():
    # scores: a 0, b 2^2 * 2 = 8, c 3^2 * 1 = 9, d 0: c makes the first group, b follows in it; row 0 shares nothing now
    contexts = [["a", "b"], ["b", "c"], ["c", "d", "b"]]
    sent = by_greedy_groups(contexts, {"a": 1, "b": 2, "c": 3, "d": 9})
    assert sent == [Sent(1, ("c", "b")), Sent(2, ("c", "b", "d")), Sent(0, ("a", "b"))]


def test_rows_without_the_group_are_grouped_among_themselves():
    contexts = [["x", "a"], ["y", "b"], ["a", "z"], ["b", "w"]]
    sent = by_greedy_groups(contexts, dict.fromkeys("abwxyz", 2))
    assert [request.number for request in sent] == [0, 2, 1, 3]
    assert [request.documents[0] for request in sent] == ["a", "a", "b", "b"]


def test_what_no_other_row_holds_keeps_its_rank():
    assert by_greedy_groups([["c", "a", "b"]], {"a": 9, "b": 5, "c": 1}) == [Sent(0, ("c", "a", "b"))]


@given(CONTEXTS)
def test_every_order_is_a_permutation(contexts):
    for sent in (in_arrival(contexts), by_frequency(contexts), by_greedy_groups(contexts, WEIGHTS)):
        assert faults(contexts, sent) == Faults(0, None, 0, None, 0, None)
        assert Counter(request.number for request in sent) == Counter(range(len(contexts)))


@given(CONTEXTS)
def test_given_contexts_stay_as_they_are(contexts):
    before = [list(context) for context in contexts]
    by_frequency(contexts)
    by_greedy_groups(contexts, WEIGHTS)
    assert contexts == before


def test_faults_are_counted():
    contexts = [["a", "b"], ["c"], ["d"]]
    assert faults(contexts, [Sent(0, ("a",)), Sent(1, ("c", "c", "x")), Sent(1, ("c",))]) == Faults(1, 0, 2, 1, 2, 1)
