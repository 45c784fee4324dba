"""Which events tell of what a prompt can be served from."""

from dataclasses import replace

import pytest

from contextpilot_core.mirror.events import BlockStored, on_gpu

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
