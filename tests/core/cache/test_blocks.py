"""Interned blocks: ids live as long as somebody refers to them, and are never used twice."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import IntegrityError
from contextpilot_core.cache.blocks import BlockTable


@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 5)), max_size=60))
def test_references_are_counted_and_the_last_one_forgets(steps: list[tuple[str, int]]):
    table, held, seen = BlockTable(), Counter[int](), dict[int, int]()
    ids: dict[int, int] = {}
    for step, name in steps:
        if step == "+":
            block = table.intern(bytes([name]), lambda name=name: name)
            assert ids.setdefault(name, block) == block
            assert seen.setdefault(block, name) == name
            assert table.tokens[block] == max(1, name)
            held[block] += 1
        elif name in ids:
            block = ids[name]
            table.release([block])
            held[block] -= 1
            if not held[block]:
                del ids[name], held[block]
                assert block not in table.tokens
        table.check_integrity(held)
        assert len(table) == len(ids)


def test_a_failing_counter_changes_nothing():
    table = BlockTable()
    with pytest.raises(ZeroDivisionError):
        table.intern(b"x", lambda: 1 // 0)
    assert len(table) == 0
    table.check_integrity({})


def test_wrong_counts_are_seen():
    table = BlockTable()
    table.intern(b"x", lambda: 1)
    with pytest.raises(IntegrityError, match="1 references"):
        table.check_integrity({})


def test_digests_that_lead_elsewhere_are_seen():
    table = BlockTable()
    block = table.intern(b"x", lambda: 1)
    table._digests[block] = b"y"
    with pytest.raises(IntegrityError, match="1 references to 1 blocks"):
        table.check_integrity({block: 1})


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 9)), max_size=12))
def test_a_path_is_described_as_it_was_interned_first(path: list[tuple[int, int]]):
    table, first = BlockTable(), dict[int, int]()
    ids = table.intern_path([(bytes([name]), tokens) for name, tokens in path])
    for name, tokens in path:
        first.setdefault(name, max(1, tokens))
    assert table.describe(ids) == tuple((bytes([name]), first[name]) for name, _ in path)
    assert [table.digest(block) for block in ids] == [bytes([name]) for name, _ in path]
    assert [table.find(bytes([name])) for name, _ in path] == ids
    table.check_integrity(Counter(ids))
    table.acquire(ids)
    table.release(ids)
    table.check_integrity(Counter(ids))
    table.release(ids)
    assert len(table) == 0
    assert table.find(b"\0") is None
    later = table.intern_path([(bytes([name]), 1) for name, _ in path])
    assert not set(later) & set(ids)
