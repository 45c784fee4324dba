"""What all holders of state share: copies are the object itself, nothing is pickled, no thread waits for a value."""

import copy
import pickle
from threading import Event, Thread
from typing import Any

import pytest

from contextpilot_core import ReuseEngine, WindowScheduler
from contextpilot_core.types import OnePerProcess, cached_property, kept_bytes

HOLDERS = [OnePerProcess(), ReuseEngine(), WindowScheduler(ReuseEngine())]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_copies_share_the_state(holder: OnePerProcess) -> None:
    assert copy.copy(holder) is holder
    assert copy.deepcopy({"engine": [holder]})["engine"][0] is holder


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_no_state_is_lost_in_a_pickle(holder: OnePerProcess) -> None:
    with pytest.raises(TypeError, match=f"{type(holder).__name__} cannot be pickled.*one per process"):
        pickle.dumps(holder)


class Slow:
    """Works a value out when it may."""

    def __init__(self) -> None:
        self.may, self.times = Event(), 0

    @cached_property
    def value(self) -> int:
        """A value."""
        self.times += 1
        assert self.may.wait(10)
        return self.times


def test_a_value_is_worked_out_once_and_stays() -> None:
    it = Slow()
    it.may.set()
    assert (it.value, it.value, it.times) == (1, 1, 1)
    assert isinstance(Slow.value, cached_property)
    assert Slow.value.__doc__ == "A value."


def test_nobody_waits_for_the_value_of_another_object() -> None:
    one, other = Slow(), Slow()
    thread = Thread(target=lambda: one.value)
    thread.start()
    other.may.set()
    assert other.value == 1
    one.may.set()
    thread.join()
    assert one.value == 1


class Odd(dict):  # type: ignore[type-arg]
    """A mapping that cannot be read."""

    def keys(self) -> Any:
        """Refuse."""
        raise KeyError("no")


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ({"source": "x" * 1_000}, 1_000, 2_000),
        ({"inner": {"deep": ["x" * 1_000] * 3}}, 3_000, 5_000),
        ({"vector": [0.5] * 100_000}, 2_000_000, 4_000_000),
        ({f"key {number}": "x" * 100 for number in range(1_000)}, 120_000, 400_000),
        (Odd(a="x"), 50, 1_000),
        (5, 20, 100),
    ],
)
def test_what_a_callers_value_keeps_is_about_right(value: object, least: int, most: int) -> None:
    assert least < kept_bytes(value) < most


def test_what_contains_itself_is_weighed() -> None:
    knot: list[Any] = ["x" * 100]
    knot.append(knot)
    assert 100 < kept_bytes(knot) < 100_000
