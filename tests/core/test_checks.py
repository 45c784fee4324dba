import math

import pytest

from contextpilot_core.checks import MOST, able, is_unicode, kind_of, number, one_of, same, shown, whole_number
from contextpilot_core.errors import ConfigError, RequestError


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, math.nan])
def test_what_is_no_whole_number_of_at_least_1(value):
    with pytest.raises(ConfigError) as caught:
        whole_number("slots", value, "2 is usual")
    assert str(caught.value) == f"slots={value!r} must be a whole number of at least 1; 2 is usual"


def test_whole_numbers_come_back_and_have_other_bounds_where_they_are_given():
    assert [whole_number("n", value, "", least=0, most=2) for value in (0, 2)] == [0, 2]
    with pytest.raises(RequestError, match=r"n=3 must be a whole number from 0 to 2; give fewer$"):
        whole_number("n", 3, "give fewer", least=0, most=2, error=RequestError)


@pytest.mark.parametrize(
    ("bounds", "wrong", "right", "rule"),
    [
        ({"above": 0}, [0, -1.5], [0.5, 3, math.inf], "a number above 0"),
        ({"least": 0}, [-1], [0, 0.5], "a number of at least 0"),
        ({"least": 0.001, "most": 0.01}, [0, 0.02], [0.001, 0.01], "a number of at least 0.001 and of at most 0.01"),
    ],
)
def test_numbers_within_bounds(bounds, wrong, right, rule):
    assert [number("seconds", value, "", **bounds) for value in right] == right
    for value in (*wrong, math.nan, True, "1", None):
        with pytest.raises(ConfigError) as caught:
            number("seconds", value, "5 is usual", **bounds)
        assert str(caught.value) == f"seconds={value!r} must be {rule}; 5 is usual"


def test_one_of_names_what_may_be_chosen():
    one_of("kind", "exact", ("exact", "hnsw"))
    with pytest.raises(ConfigError, match=r"kind='near' is not one of 'exact', 'hnsw'; choose one of them$"):
        one_of("kind", "near", ("exact", "hnsw"))


class Silent:
    """A value that cannot be written."""

    def __repr__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(10**5000, "<int>", id="huge"),
        ([10**5000], "<list>"),
        (Silent(), "<Silent>"),
        ("a" * 500, "'" + "a" * 78 + "…"),
        (-1, "-1"),
    ],
)
def test_any_value_can_be_named_in_a_message(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("value", [10**400, pytest.param(10**5000, id="huge"), MOST + 1])
def test_whole_numbers_that_no_sum_can_take_are_refused(value):
    assert whole_number("n", MOST, "") == MOST
    with pytest.raises(ConfigError, match=rf"^n=.* must be a whole number from 1 to {MOST}; give fewer$"):
        whole_number("n", value, "give fewer")


@pytest.mark.parametrize("value", [10**400, -(10**400), pytest.param(10**5000, id="huge")])
def test_whole_numbers_that_no_float_holds_are_no_numbers(value):
    with pytest.raises(ConfigError, match=r"^seconds=.* must be a number that is finite; 5 is usual$"):
        number("seconds", value, "5 is usual")


@pytest.mark.parametrize("value", [[], {}, 5, None, True, Silent()])
def test_only_a_text_is_one_of_some(value):
    with pytest.raises(ConfigError, match="is not one of 'exact'; choose"):
        one_of("kind", value, ("exact",))


def test_what_refuses_to_be_compared_is_equal_to_itself_alone():
    class Refusing:
        def __eq__(self, other):
            raise RuntimeError("ambiguous")

        __hash__ = None

    first = Refusing()
    assert same(first, first) and not same(first, Refusing())
    assert same({"a": first}, {"a": first}) and not same({"a": first}, {"a": Refusing()})
    assert same([1], [1]) and not same(1, 2)


def test_what_is_of_another_type_is_named_by_its_type_alone():
    kind_of("engine", "x", str, "a str")
    kind_of("engine", None, (str, type(None)), "a str, or None")
    with pytest.raises(ConfigError, match=r"^key is a str; it must be bytes of a secret$"):
        kind_of("key", "secret-text", bytes, "bytes of a secret")


def test_what_lacks_a_method_is_refused():
    able("source", "x", ["join", "split"], "a str")
    able("clock", len, ["__call__"], "a function")
    for value in (5, None, object()):
        with pytest.raises(ConfigError, match=rf"^source is a {type(value).__name__} without join; it must be a str$"):
            able("source", value, ["join", "split"], "a str")


def test_half_a_character_is_no_unicode():
    assert is_unicode("") and is_unicode("abc") and is_unicode("é😀")
    assert not is_unicode("\ud83d") and not is_unicode("a\udcffb")
