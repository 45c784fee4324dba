"""The memory of the sessions' last orders."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ConfigError
from contextpilot_integrations.reorder.orders import OrderMemory


def test_memory_is_bounded_and_shared_by_copies():
    orders = OrderMemory(max_sessions=3)
    for number in range(10):
        orders.keep("n", str(number), (b"x",))
    assert len(orders) == 3
    assert orders.last("n", "9") == (b"x",)
    assert orders.last("n", "0") == ()
    assert copy.deepcopy(orders) is copy.copy(orders) is orders
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(orders)
    for limit in (0, True, "3"):
        with pytest.raises(ConfigError, match="max_sessions=.* must be a whole number"):
            OrderMemory(limit)


def test_the_session_kept_longest_ago_is_forgotten_first():
    orders = OrderMemory(max_sessions=2)
    for session_id in ("a", "b", "a", "c"):
        orders.keep("n", session_id, (session_id.encode(),))
    assert orders.last("n", "a") == (b"a",)
    assert orders.last("n", "b") == ()
    assert orders.last("n", "c") == (b"c",)


def test_the_later_order_of_a_session_counts():
    orders = OrderMemory()
    orders.keep("n", "u", (b"x", b"y"))
    orders.keep("n", "u", (b"y",))
    assert orders.last("n", "u") == (b"y",)
    assert len(orders) == 1


def test_the_same_session_id_in_two_namespaces_is_two_sessions():
    orders = OrderMemory()
    orders.keep("default", "u", (b"x",))
    orders.keep("other", "u", (b"y",))
    assert orders.forget("u")
    assert not orders.forget("u")
    assert (orders.last("default", "u"), orders.last("other", "u")) == ((), (b"y",))
    assert orders.forget("u", namespace="other")
    assert len(orders) == 0


@settings(deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("nm"), st.sampled_from("abcdef"), st.binary(max_size=2))))
def test_what_is_remembered_are_the_sessions_kept_last(limit, kept):
    orders, expected = OrderMemory(limit), {}
    for namespace, session_id, digest in kept:
        orders.keep(namespace, session_id, (digest,))
        expected.pop((namespace, session_id), None)
        expected[namespace, session_id] = (digest,)
    remembered = {}
    for space in "nm":  # each namespace by itself: what others keep makes nobody forget
        remembered.update([entry for entry in expected.items() if entry[0][0] == space][-limit:])
    assert len(orders) == len(remembered)
    for namespace, session_id in expected:
        assert orders.last(namespace, session_id) == remembered.get((namespace, session_id), ())
