"""Operations and snapshots as bytes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.cache import CacheState
from contextpilot_core.journal import NamespaceSnapshot, Snapshot
from contextpilot_core.journal.operations import Committed, Inserted, Recorded, Released, Rendered, Reset
from contextpilot_core.prompt import KnownRecord
from contextpilot_core.prompt.visible import MessageRecord
from tests.conftest import require

require("redis")
msgspec = require("msgspec")
from contextpilot_integrations.stores.codec import decode_operation, decode_snapshot, encode_operation, encode_snapshot  # noqa: E402
from tests.integrations.redis_stores import CONTRADICTION  # noqa: E402

RECORD = MessageRecord(((b"\xff", 9), (b"a", 1)), frozenset({9, 1}), frozenset({3}), 9, ((b"a", 7),), ((9, 0, 4),))
OPERATIONS = [
    Inserted("n", None, ((b"\xff", 3), (b"\x00", 1))),
    Inserted("", "r", ()),
    Committed("n", "r", (b"k",)),
    Rendered("n", "r", b"k", RECORD),
    Released("n", "r"),
    Recorded("n", "r", ((b"a", 3), (b"\xff", 1)), b"\x00\xff", (None, 7)),
    Reset("n"),
    Reset(None),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: type(operation).__name__)
def test_operations_are_the_same_after_their_way_through_bytes(operation):
    assert decode_operation(*encode_operation(operation)) == operation


def test_an_operation_that_contradicts_itself_is_not_read():
    with pytest.raises(ValueError, match="not of their types"):
        decode_operation("recorded", CONTRADICTION)


def record(order: int) -> MessageRecord:
    """The same record, its sets put together in another order."""
    labels = ((b"a", 1), (b"\xff", 9), (b"", 3))
    numbers = [9, 1, 3, 1_000][::order]
    return MessageRecord(labels, frozenset(numbers), frozenset(numbers[1:3]), 9, ((b"a", 7),), ((9, 0, 4),))


def snapshot(order: int = 1) -> Snapshot:
    state = CacheState(nodes=((-1, (0, 1)), (0, (2,))), recency=((0, 3), (1, 4)), requests=(("r", 1),), admissions=4)
    blocks = ((b"\x00", 3), (b"\xff", 1), (b"k", 9))
    known = KnownRecord(b"key", record(order), 12.5, ("r", "s"))
    return Snapshot(7, 3.25, (("v", 1), ("w", 6)), (NamespaceSnapshot("n", blocks, state, (known,)),))


def test_snapshots_are_the_same_after_their_way_through_bytes():
    empty = Snapshot(0, 0.0, (), ())
    assert decode_snapshot(encode_snapshot(empty)) == empty
    assert decode_snapshot(encode_snapshot(snapshot())) == snapshot()


def test_equal_values_have_equal_bytes():
    assert encode_snapshot(snapshot(1)) == encode_snapshot(snapshot(-1))
    one, other = (encode_operation(Rendered("n", "r", b"k", record(order))) for order in (1, -1))
    assert one == other


def test_an_unknown_kind_is_named_in_part():
    with pytest.raises(ValueError, match=f"operations of kind {'x' * 20!r} are unknown"):
        decode_operation("x" * 1_000, b"")


def test_a_snapshot_of_another_version_is_not_read():
    _, values = msgspec.msgpack.decode(encode_snapshot(snapshot()))
    for content in (values, {"of": "another shape"}):
        with pytest.raises(ValueError, match="snapshots of version 99 are unknown"):
            decode_snapshot(msgspec.msgpack.encode((99, content)))


@pytest.mark.parametrize(
    "change",
    [{"entries": "7"}, {"time": None}, {"numbers": [["w"]]}, {"namespaces": [{}]}, {"namespaces": None}],
)
def test_a_snapshot_of_other_types_is_not_read(change):
    version, values = msgspec.msgpack.decode(encode_snapshot(snapshot()))
    with pytest.raises(ValueError, match="bytes are not of their types"):
        decode_snapshot(msgspec.msgpack.encode((version, {**values, **change})))


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["inserted", "committed", "rendered", "released", "recorded", "reset"]))
def test_bytes_of_others_are_a_value_error_that_does_not_repeat_them(values, kind):
    for read in (decode_snapshot, lambda given: decode_operation(kind, given)):
        try:
            read(values)
        except ValueError as error:
            assert re.fullmatch(r"\d+ bytes are (no msgpack|not of their types)|snapshots of .*", str(error))


@pytest.mark.parametrize("cut", range(1, 40, 4))
def test_an_operation_that_broke_off_is_not_read(cut):
    for operation in OPERATIONS:
        kind, values = encode_operation(operation)
        with pytest.raises(ValueError, match="bytes are no msgpack"):
            decode_operation(kind, values[: -min(cut, len(values))])
