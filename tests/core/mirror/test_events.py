"""Which events tell of what a prompt can be served from."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import RequestTypeError
from contextpilot_core.mirror.events import BlockRemoved, BlockStored, on_gpu
from contextpilot_core.mirror.mirror import KVMirror

STORED = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(5, 6), block_size=2)


@pytest.mark.parametrize("medium", [None, "GPU", "gpu"])
@pytest.mark.parametrize("locality", [None, "LOCAL"])
def test_an_engine_that_names_no_medium_has_its_gpu_only(medium: str | None, locality: str | None):
    assert on_gpu(medium, locality)
    assert replace(STORED, medium=medium, locality=locality).decides_reuse


@pytest.mark.parametrize(
    ("medium", "locality"), [("CPU", None), ("CPU_PINNED", "LOCAL"), ("", None), ("GPU", "REMOTE"), (None, "REMOTE")]
)
def test_what_lies_elsewhere_serves_no_prompt(medium: str | None, locality: str | None):
    assert not on_gpu(medium, locality)
    assert not replace(STORED, medium=medium, locality=locality).decides_reuse


@pytest.mark.parametrize(
    ("kind", "decides"),
    [
        (None, True),
        ("full_attention", True),
        ("mla_attention", True),
        ("sink_full_attention", True),
        ("sliding_window", False),
        ("mamba", False),
        ("FULL_ATTENTION", False),  # a kind that is not known is not trusted
    ],
)
def test_only_layers_that_see_the_whole_prefix_decide(kind: str | None, decides: bool):
    assert replace(STORED, kv_cache_spec_kind=kind).decides_reuse is decides


JUNK = [None, 5, -1, 10**400, float("nan"), "x", b"x", [], (1, 2), ([],), ({},), {}, True, object()]
FIELDS = [field.name for field in fields(BlockStored)]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(JUNK), max_size=3), st.sampled_from([0, 0, "x", None]))
def test_an_event_that_no_engine_sends_is_refused_before_anything_changes(wrong, rank):
    good = {"block_hashes": (1, 2), "parent_block_hash": None, "token_ids": tuple(range(32)), "block_size": 16}
    later = BlockStored(block_hashes=(3, 4), parent_block_hash=2, token_ids=tuple(range(32)), block_size=16)
    mirror = KVMirror()
    mirror.apply([BlockStored(**good)])
    before = mirror.moment, mirror.tokens
    removed = {name: value for name, value in wrong.items() if name in ("block_hashes", "medium", "group_idx")}
    for event in (BlockStored(**{**good, **wrong}), BlockRemoved(**{"block_hashes": (9,), **removed})):
        try:
            mirror.apply([later, event], rank)
        except RequestTypeError:
            assert (mirror.moment, mirror.tokens) == before
        mirror.check_integrity()
        before = mirror.moment, mirror.tokens
