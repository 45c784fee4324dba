"""One rank's blocks, present and past, against a plain record of every state."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.rank import Rank

A, B, C = b"a", b"b", b"c"


class Model:
    """Copies by name and group; a key belongs to the first block that had it. What was held is kept by moment."""

    def __init__(self) -> None:
        self.copies: dict[int, Counter[int]] = {}
        self.keys: dict[int, bytes] = {}
        self.groups: set[int] = set()
        self.said: list[set[bytes]] = [set()]  # by moment: what was held in the end

    def add(self, name: int, group: int, key: bytes | None, moment: int) -> None:
        self.groups.add(group)
        self.copies.setdefault(name, Counter())[group] += 1
        if key is not None and name not in self.keys and key not in self.keys.values():
            self.keys[name] = key

    def remove(self, name: int, group: int, moment: int) -> bool:
        if not self.copies.get(name, Counter())[group]:
            return False
        self.copies[name][group] -= 1
        self.copies[name] += Counter()  # drops what is 0
        if not self.copies[name]:
            del self.copies[name]
            self.keys.pop(name, None)
        return True

    def clear(self, moment: int) -> None:
        self.copies.clear()
        self.keys.clear()
        self.groups.clear()

    def holds(self, key: bytes) -> bool:
        names = [name for name, known in self.keys.items() if known == key]
        return any(set(self.copies[name]) >= self.groups for name in names)

    def note(self, moment: int) -> None:
        """Write down what is held; nothing happened in the moments that were passed over."""
        while len(self.said) <= moment:
            self.said.append(self.said[-1])
        self.said[moment] = {key for key in (A, B, C) if self.holds(key)}

    def stays(self, key: bytes) -> list[list[int]]:
        """Return the moments of every stay of a key."""
        found: list[list[int]] = []
        for moment, held in enumerate(self.said):
            if key in held:
                if not found or found[-1][-1] != moment - 1:
                    found.append([])
                found[-1].append(moment)
        return found


def operations(groups: int) -> st.SearchStrategy[list[tuple[object, ...]]]:
    names, group = st.integers(0, 4), st.integers(0, groups - 1)
    step = st.one_of(
        st.tuples(st.just("add"), names, group, st.sampled_from([A, B, C, None])),
        st.tuples(st.just("remove"), names, group),
        st.tuples(st.sampled_from(["next", "next", "next", "clear"])),
    )
    return st.lists(step, max_size=40)


def follow(rank: Rank, model: Model, step: tuple[object, ...], moment: int) -> int:
    """Let both follow a step, and return the moment of the next."""
    kind, *more = step
    if kind == "next":
        return moment + 1
    results = [getattr(each, str(kind))(*more, moment) for each in (rank, model)]
    assert results[0] == results[1]
    model.note(moment)
    rank.check_integrity()
    assert (len(rank), rank.reusable) == (len(model.copies), len(model.keys))
    assert [rank.holds(key) for key in (A, B, C)] == [model.holds(key) for key in (A, B, C)]
    return moment


def remembered(rank: Rank, model: Model, key: bytes) -> set[int]:
    return {at for at in range(len(model.said)) if rank.holds(key, at)}


@settings(max_examples=300)
@given(operations(groups=1))
def test_the_present_stay_and_the_one_before_are_remembered(steps: list[tuple[object, ...]]):
    rank, model = Rank(), Model()
    for moment, step in enumerate(steps, start=1):
        follow(rank, model, step, moment)
        for key in (A, B, C):
            stays = model.stays(key)
            assert remembered(rank, model, key) == set().union(*stays[-2 if model.holds(key) else -1 :])


@settings(max_examples=500)
@given(operations(groups=3))
def test_no_more_is_claimed_of_the_past_than_was_true_and_the_last_stay_is_known(steps: list[tuple[object, ...]]):
    rank, model, moment = Rank(), Model(), 1
    for step in steps:
        moment = follow(rank, model, step, moment)
        for key in (A, B, C):
            stays = model.stays(key)
            assert set().union(*stays[-1:]) <= remembered(rank, model, key) <= set().union(*stays)


@settings(max_examples=300)
@given(operations(groups=3), st.permutations([A, B, C]))
def test_a_block_is_there_when_all_groups_hold_it(steps: list[tuple[object, ...]], keys: list[bytes]):
    rank, model, moment = Rank(), Model(), 1
    for step in steps:
        moment = follow(rank, model, step, moment)
        held = [model.holds(key) for key in keys]
        assert rank.holds_all(keys) == all(held)
        assert rank.leading(keys) == (held.index(False) if False in held else 3)
    for name in range(5):
        assert rank.key_of(name) == model.keys.get(name)


def test_the_past_of_a_prefix():
    rank = Rank()
    for moment, key in ((1, A), (2, B)):
        rank.add(moment, None, key, moment)
    rank.remove(1, None, 3)
    assert rank.leading([A, B]) == 0
    assert [rank.leading([A, B], at) for at in range(4)] == [0, 1, 2, 0]
    rank.add(1, None, A, 4)
    assert [rank.leading([A, B], at) for at in range(5)] == [0, 1, 2, 0, 2]


def test_a_stay_ends_when_the_first_group_lets_go():
    rank = Rank()
    rank.add("x", 0, A, 1)
    rank.add("x", 1, A, 1)
    rank.remove("x", 1, 2)
    rank.remove("x", 0, 3)
    assert [rank.holds(A, at) for at in range(4)] == [False, True, False, False]


def test_a_stay_begins_when_the_last_group_has_it():
    rank = Rank()
    rank.add("y", 0, B, 1)
    rank.add("y", 1, B, 1)
    rank.add("x", 0, A, 1)
    rank.add("x", 1, A, 5)
    assert [rank.holds(A, at) for at in (3, 4, 5, 6)] == [False, False, True, True]
    rank.remove("x", 0, 7)
    rank.add("x", 0, A, 9)
    assert [rank.holds(A, at) for at in (4, 5, 6, 7, 8, 9)] == [False, True, True, False, False, True]


def test_a_group_that_turns_up_ends_the_stays_of_what_it_does_not_hold():
    rank = Rank()
    rank.add("x", 0, A, 1)
    rank.add("y", 0, B, 1)
    rank.add("y", 1, B, 3)
    assert [[rank.holds(key, at) for at in (1, 2, 3, 4)] for key in (A, B)] == [[True, True, False, False], [True] * 4]
    rank.add("x", 1, A, 6)
    assert [rank.holds(A, at) for at in range(1, 8)] == [True, True, False, False, False, True, True]


def test_what_comes_back_in_the_same_moment_was_never_away():
    rank = Rank()
    rank.add("x", None, A, 1)
    for moment in (3, 5):
        rank.remove("x", None, moment)
        rank.add("x", None, A, moment)
    assert [rank.holds(A, at) for at in range(7)] == [False] + [True] * 6


def test_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("contextpilot_core.mirror.rank._REMEMBERED", 2)
    rank = Rank()
    for name, key in enumerate((A, B, C)):
        rank.add(name, None, key, 1)
    for name in (1, 0, 2):
        rank.remove(name, None, 2)
    assert [rank.holds(key, 1) for key in (A, B, C)] == [True, False, True]
    rank.add(0, None, A, 3)
    rank.remove(0, None, 4)  # its latest stay is the youngest now
    rank.add(1, None, B, 5)
    rank.remove(1, None, 6)
    assert [rank.holds(key, at) for key, at in ((A, 3), (B, 5), (C, 1))] == [True, True, False]


def three() -> Rank:
    rank = Rank()
    for name, key in enumerate((A, B, C)):
        rank.add(name, 0, key, 1)
    return rank


def test_integrity_check_sees_lost_copies_groups_and_keys():
    rank = three()
    rank._by_key.popitem()
    with pytest.raises(IntegrityError, match="block 2 of the mirror is not found by its key"):
        rank.check_integrity()
    rank = three()
    rank._blocks[1].copies.clear()
    with pytest.raises(IntegrityError, match=r"block 1 of the mirror has copies \{\}"):
        rank.check_integrity()
    rank = three()
    rank._blocks[0].groups = 0
    with pytest.raises(IntegrityError, match="block 0 of the mirror is in 0 groups, its copies differ"):
        rank.check_integrity()
    rank = three()
    rank._groups.clear()
    with pytest.raises(IntegrityError, match=r"copies \{0: 1\}"):
        rank.check_integrity()
    rank = three()
    del rank._blocks[1]
    with pytest.raises(IntegrityError, match="keys of blocks that left"):
        rank.check_integrity()
