"""KV cache events as bytes: every form that engines send, whatever is malformed, and a capture of vLLM's own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from tests.conftest import require

msgspec = require("msgspec")
require("zmq")

from contextpilot_integrations.serving.events.codec import EventDecoder  # noqa: E402
from tests.integrations.kv_capture import PlainCache, capture, compare  # noqa: E402
from tests.integrations.kv_publisher import as_array, as_map, payload  # noqa: E402

STORED = BlockStored(
    block_hashes=(2**64 - 1, b"\x00\xff", -5),
    parent_block_hash=b"parent",
    token_ids=(1, 2, 3, 4, 5, 6),
    block_size=2,
    medium="GPU",
    extra_keys=(("adapter", "salt"), None, None),
    group_idx=0,
    kv_cache_spec_kind="full_attention",
)
EVENTS = (STORED, BlockRemoved(block_hashes=(7, b"x"), medium="GPU", group_idx=1), AllBlocksCleared())
SHORT = (
    BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_size=2),
    BlockRemoved(block_hashes=(1,)),
)
decode = EventDecoder().decode


def pack(*events, after=(0,)):
    return msgspec.msgpack.encode([1.5, list(events), *after])


@pytest.mark.parametrize("events", [EVENTS, SHORT])
@pytest.mark.parametrize("form", [as_map, as_array])
def test_v1_arrays_and_maps_are_decoded_alike(events, form):
    batch = decode(payload(events, form))
    assert batch.events == events
    assert batch.unknown == 0


def test_a_batch_has_the_time_of_the_engines_clock_and_may_be_empty():
    batch = decode(pack())
    assert (batch.time, batch.events, batch.unknown) == (1.5, (), 0)
    assert decode(msgspec.msgpack.encode([3, []])).time == 3


def test_v1_the_oldest_forms():
    batch = decode(
        pack(["BlockStored", [1], None, [1, 2], 2, None], ["BlockRemoved", [1]], ["AllBlocksCleared"], after=())
    )
    assert batch.events == (*SHORT, AllBlocksCleared())


def test_v1_unknown_keys_kinds_and_positions_are_ignored():
    more = {**as_map(STORED), "session_id": "s", "future": {"a": [1]}}
    longer = [*as_array(EVENTS[1]), "LOCAL", "tier", 9]
    batch = decode(pack(more, longer, {"type": "BlockMoved", "from": 1}, ["BlockMoved", 1], after=(0, "later", {})))
    assert batch.events == (STORED, replace(EVENTS[1], locality="LOCAL"))
    assert batch.unknown == 2


def test_v1_hashes_as_ints_and_bytes_follow_the_same_path():
    for names in ((1, 2), (b"a", b"b"), (-(2**63), 2**64 - 1)):
        mirror = KVMirror()
        for event in (
            {"type": "BlockStored", "block_hashes": names[:1], "parent_block_hash": None, "token_ids": [1, 2]},
            {"type": "BlockStored", "block_hashes": names[1:], "parent_block_hash": names[0], "token_ids": [3, 4]},
        ):
            mirror.apply(decode(pack({**event, "block_size": 2})).events)
        assert mirror.cached_tokens([1, 2, 3, 4, 5]) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        pack({"type": "BlockStored"}),
        pack({"no": "type"}),
        pack([]),
        pack([1, [2]]),
        pack(7),
        pack(["BlockRemoved"]),
        pack({**as_map(STORED), "block_hashes": [True]}),
        pack({**as_map(STORED), "block_hashes": "text"}),
        pack({**as_map(STORED), "token_ids": [[1, 2]]}),
        pack({**as_map(STORED), "block_size": "2"}),
        pack({**as_map(STORED), "lora_name": ["full"]}),
        msgspec.msgpack.encode({"ts": 1.0}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, "events"]),
        payload(EVENTS)[:-3],
    ],
)
def test_what_is_malformed_is_none(data):
    assert decode(data) is None


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4))
def test_no_bytes_raise(junk, changes):
    decode(junk)
    data = bytearray(payload(EVENTS))
    for place, value in changes:
        data[place % len(data)] = value
    batch = decode(bytes(data))
    if batch is not None:
        mirror = KVMirror()
        mirror.apply(batch.events)
        mirror.check_integrity()


@pytest.mark.parametrize("form", [as_map, as_array])
def test_the_capture_gives_the_state_of_the_plain_model_after_every_batch(data_dir, form):
    mirror, cache, held = KVMirror(), PlainCache(), []
    for number, line in enumerate(capture(data_dir)):
        assert line["seq"] == number
        batch = decode(msgspec.msgpack.encode(line["batch"]))
        again = decode(payload(batch.events, form))
        assert batch.unknown == 0 and again.events == batch.events
        mirror.apply(again.events)
        for event in line["batch"][1]:
            cache.apply(event)
        compare(mirror, cache)
        mirror.check_integrity()
        held.append(mirror.tokens // 32)
    assert mirror.block_size == 32
    assert mirror.orphans == mirror.ignored == 0
    assert max(held) == 259  # 260 blocks in the pool of that server, of which one is never used
    assert held[-2:] == [held[-2], 1]  # cleared by the request, then the next prompt's first block
