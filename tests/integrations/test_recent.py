"""The things used last: what is forgotten, what is use, what is kept although it is old, and threads."""

import threading
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_integrations.recent import Recent


def make(value: str) -> Any:
    return lambda: value


def unused() -> str:
    raise AssertionError("there is a value already")


def test_the_least_recently_used_is_forgotten():
    recent: Recent[str, str] = Recent(2)
    recent.put("a", "1")
    recent.put("b", "2")
    assert recent.get("a", unused) == "1"  # a use
    recent.put("c", "3")
    assert [recent.peek(key) for key in "abc"] == ["1", None, "3"]
    assert len(recent) == 2


def test_a_look_is_no_use():
    recent: Recent[str, str] = Recent(2)
    recent.put("a", "1")
    recent.put("b", "2")
    assert recent.peek("a") == "1"
    recent.put("c", "3")
    assert [recent.peek(key) for key in "abc"] == [None, "2", "3"]


def test_what_is_not_there_is_made_once_and_kept():
    recent: Recent[str, str] = Recent(2)
    assert recent.get("a", make("1")) == "1"
    assert recent.get("a", unused) == "1"
    assert recent.peek("a") == "1"


def test_what_cannot_be_made_leaves_nothing():
    recent: Recent[str, str] = Recent(2)
    for _ in range(2):
        with pytest.raises(AssertionError, match="there is a value"):
            recent.get("a", unused)
        assert (len(recent), recent.peek("a")) == (0, None)
    assert recent.get("a", make("1")) == "1"


def test_a_value_may_be_replaced_and_taken():
    recent: Recent[str, str] = Recent(2)
    recent.put("a", "1")
    recent.put("a", "2")
    assert (len(recent), recent.pop("a"), recent.pop("a"), len(recent)) == (1, "2", None, 0)
    assert recent.get("a", make("3")) == "3"


def test_the_newest_is_kept_where_nothing_may_be():
    recent: Recent[str, str] = Recent(0)
    recent.put("a", "1")
    assert recent.peek("a") == "1"
    recent.put("b", "2")
    assert [recent.peek(key) for key in "ab"] == [None, "2"]


def test_what_is_in_use_is_not_forgotten_until_it_is_not():
    busy = {"a", "b"}
    recent: Recent[str, str] = Recent(1, busy.__contains__)
    for key in "abc":
        recent.put(key, key)
    assert [recent.peek(key) for key in "abc"] == ["a", "b", "c"]
    recent.put("d", "d")
    assert [recent.peek(key) for key in "abcd"] == ["a", "b", None, "d"]
    busy.clear()
    recent.put("e", "e")
    assert [recent.peek(key) for key in "abde"] == [None, None, None, "e"]


def test_making_holds_up_nobody_and_all_get_the_value_that_was_first():
    recent: Recent[str, str] = Recent(2)
    started, go_on = threading.Event(), threading.Event()
    found: list[str] = []

    def slow() -> str:
        started.set()
        assert go_on.wait(5)
        return "slow"

    thread = threading.Thread(target=lambda: found.append(recent.get("a", slow)))
    thread.start()
    assert started.wait(5)
    recent.put("b", "2")
    assert recent.get("a", make("fast")) == "fast"
    go_on.set()
    thread.join(5)
    assert found == ["fast"]
    assert recent.peek("a") == "fast"


def test_threads_never_see_more_than_fits_or_another_ones_value():
    recent: Recent[int, int] = Recent(8)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for number in range(2_000):
            key = (seed * 7 + number * number) % 20
            if number % 5 == 0:
                recent.pop(key)
            elif recent.get(key, lambda key=key: -key) != -key:  # type: ignore[misc]
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(recent) <= 8


steps = st.lists(
    st.tuples(st.sampled_from(["get", "put", "peek", "pop", "use", "free"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=40,
)


@settings(deadline=None)
@given(steps, st.integers(0, 4))
def test_it_is_a_list_in_the_order_of_use(sequence: list[tuple[str, int, int]], limit: int):
    busy: set[int] = set()
    recent: Recent[int, int] = Recent(limit, busy.__contains__)
    model: OrderedDict[int, int] = OrderedDict()
    for step, key, value in sequence:
        if step == "use":
            busy.add(key)
        elif step == "free":
            busy.discard(key)
        elif step == "peek":
            assert recent.peek(key) == model.get(key)
        elif step == "pop":
            assert recent.pop(key) == model.pop(key, None)
        elif step == "get" and key in model:
            assert recent.get(key, unused_number) == model[key]
            model.move_to_end(key)
        else:
            if step == "get":
                assert recent.get(key, lambda value=value: value) == value  # type: ignore[misc]
            else:
                recent.put(key, value)
            model[key] = value
            model.move_to_end(key)
            beyond = list(model)[: max(0, len(model) - limit)]
            for old in beyond:
                if old != key and old not in busy:
                    del model[old]
        assert len(recent) == len(model)
    assert [recent.peek(key) for key in range(6)] == [model.get(key) for key in range(6)]


def unused_number() -> int:
    raise AssertionError("there is a value already")


def test_a_limit_counts_within_a_group():
    recent: Recent[tuple[str, int], str] = Recent(2, group=lambda key: key[0])
    recent.put(("a", 1), "first")
    for number in range(9):
        recent.put(("b", number), "other")
    assert recent.peek(("a", 1)) == "first"
    assert len(recent) == 3
    assert [recent.pop(("b", number)) for number in (7, 8, 8)] == ["other", "other", None]
    assert len(recent) == 1


def test_groups_are_bounded_and_those_in_use_stay(monkeypatch):
    monkeypatch.setattr("contextpilot_integrations.recent._MOST_GROUPS", 2)
    held: set[tuple[str, int]] = {("a", 1)}
    recent: Recent[tuple[str, int], str] = Recent(2, held.__contains__, group=lambda key: key[0])
    for name in "abcd":
        recent.put((name, 1), name)
    assert [recent.peek((name, 1)) for name in "abcd"] == ["a", None, "c", "d"]
    held.clear()
    recent.get(("c", 1), unused)
    assert [recent.peek((name, 1)) for name in "abcd"] == [None, None, "c", "d"]
