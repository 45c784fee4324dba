"""One rank's blocks, present and past, against a plain record of every state."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import IntegrityError
from contextpilot_core.mirror.rank import Rank

A, B, C = b"a", b"b", b"c"


class Model:
    """Copies by name and group; a key belongs to the first block that had it. Every stay of a key is written down."""

    def __init__(self) -> None:
        self.copies: dict[int, Counter[int]] = {}
        self.keys: dict[int, bytes] = {}
        self.groups: set[int] = set()
        self.stays: dict[bytes, list[list[int]]] = {}  # since, until: 0 is still there

    def add(self, name: int, group: int, key: bytes | None, moment: int) -> None:
        self.groups.add(group)
        self.copies.setdefault(name, Counter())[group] += 1
        if key is not None and name not in self.keys and key not in self.keys.values():
            self.keys[name] = key
            self.stays.setdefault(key, []).append([moment, 0])

    def remove(self, name: int, group: int, moment: int) -> bool:
        if not self.copies.get(name, Counter())[group]:
            return False
        self.copies[name][group] -= 1
        self.copies[name] += Counter()  # drops what is 0
        if not self.copies[name]:
            self.leave(name, moment)
        return True

    def leave(self, name: int, moment: int) -> None:
        del self.copies[name]
        if name in self.keys:
            self.stays[self.keys.pop(name)][-1][1] = moment

    def clear(self, moment: int) -> None:
        for name in list(self.copies):
            self.leave(name, moment)
        self.groups.clear()

    def holds(self, key: bytes) -> bool:
        names = [name for name, known in self.keys.items() if known == key]
        return any(set(self.copies[name]) >= self.groups for name in names)

    def held(self, key: bytes, at: int) -> bool:
        """Tell whether the present stay, or the last one that ended, was going on at a moment."""
        stays = self.stays.get(key, [])
        ended = [stay for stay in stays if stay[1]]
        return any(since <= at < until for since, until in ended[-1:]) or any(
            since <= at for since, until in stays if not until
        )


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
    return moment


@settings(max_examples=300)
@given(operations(groups=1))
def test_present_and_past_are_those_of_the_record(steps: list[tuple[object, ...]]):
    rank, model, moment = Rank(), Model(), 1
    for step in steps:
        moment = follow(rank, model, step, moment)
        rank.check_integrity()
        assert (len(rank), rank.reusable) == (len(model.copies), len(model.keys))
        for key in (A, B, C):
            assert rank.holds(key) == model.holds(key)
            for at in range(moment + 1):
                assert rank.holds(key, at) == model.held(key, at)


@settings(max_examples=300)
@given(operations(groups=3), st.permutations([A, B, C]))
def test_a_block_is_there_when_all_groups_hold_it(steps: list[tuple[object, ...]], keys: list[bytes]):
    rank, model, moment = Rank(), Model(), 1
    for step in steps:
        moment = follow(rank, model, step, moment)
        rank.check_integrity()
        held = [model.holds(key) for key in keys]
        assert [rank.holds(key) for key in keys] == held
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


def test_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("contextpilot_core.mirror.rank._REMEMBERED", 2)
    rank = Rank()
    for name, key in enumerate((A, B, C)):
        rank.add(name, None, key, 1)
    for name in (1, 0, 2):
        rank.remove(name, None, 2)
    assert [rank.holds(key, 1) for key in (A, B, C)] == [True, False, True]


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
    rank._groups.clear()
    with pytest.raises(IntegrityError, match=r"copies \{0: 1\}"):
        rank.check_integrity()
    rank = three()
    del rank._blocks[1]
    with pytest.raises(IntegrityError, match="keys of blocks that left"):
        rank.check_integrity()
