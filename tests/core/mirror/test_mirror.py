"""The mirror against a plain model of serving engines: whatever the events say, nothing is cached that is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import ConfigError, IntegrityError
from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from tests.core.kv_engine import SIZE, Engine, compare, run, steps
from tests.forked import in_child

PROMPT = tuple(range(100, 100 + 3 * SIZE))


def stored(hashes=(1, 2, 3), parent=None, tokens=PROMPT, size=SIZE, **more):
    return BlockStored(block_hashes=hashes, parent_block_hash=parent, token_ids=tokens, block_size=size, **more)


def removed(*hashes, **more):
    return BlockRemoved(block_hashes=hashes, **more)


def mirror_of(*events):
    mirror = KVMirror()
    mirror.apply(events)
    mirror.check_integrity()
    return mirror


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), steps), max_size=25), st.sampled_from([(0,), (None,), (0, 2)]))
def test_the_mirror_holds_what_the_engines_hold(sequence, groups):
    engines, mirror = [Engine(groups), Engine(groups)], KVMirror()
    for rank, step in sequence:
        mirror.apply(run(engines[rank], step), rank)
        compare(mirror, engines, exact=True)
    assert mirror.ignored == mirror.orphans == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25), st.integers(0, 25))
def test_events_from_some_point_on_give_a_part_of_the_truth(sequence, joined):
    engine, mirror = Engine(), KVMirror(SIZE)
    for number, step in enumerate(sequence):
        events = run(engine, step)
        if number == joined:
            mirror.clear()
        if number >= joined:
            mirror.apply(events)
            compare(mirror, [engine], exact=False)


noise = st.sampled_from(
    [
        stored((7, 8), None, PROMPT[: 2 * SIZE], medium="CPU", kv_cache_spec_kind="full_attention"),
        stored((7, 8), None, PROMPT[: 2 * SIZE], medium="GPU", locality="REMOTE"),
        stored((7, 8), None, PROMPT[: 2 * SIZE], group_idx=1, kv_cache_spec_kind="sliding_window"),
        stored((7, 8), 99, PROMPT[: 2 * SIZE], group_idx=0),
        stored((7,), None, PROMPT[: SIZE - 1], SIZE - 1),
        stored((7, 8), None, PROMPT[:SIZE]),
        stored((7,), None, PROMPT[:SIZE], extra_keys=()),
        stored((7,), None, (1, 2, 3, "x"), group_idx=0),
        stored((7,), None, (1, 2, 3, 1 << 40), group_idx=0),
        stored((7,), None, (), 0),
        removed(404),
        removed(7, 8, medium="CPU"),
        removed(b"\x07", group_idx=5),
        "no event",
        None,
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(steps, noise), max_size=30))
def test_what_does_not_concern_the_gpu_changes_nothing_and_nothing_raises(sequence):
    engine, mirror = Engine(), KVMirror(SIZE)
    for step in sequence:
        mirror.apply(run(engine, step) if isinstance(step, tuple) else [step])
        compare(mirror, [engine], exact=True)


def test_v4_a_duplicate_store_then_one_removal_is_still_cached():
    mirror = mirror_of(stored(), stored(), removed(3, 2, 1))
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE
    mirror.apply([removed(3)])
    assert mirror.cached_tokens((*PROMPT, 0)) == 2 * SIZE
    assert mirror.tokens == 2 * SIZE


@pytest.mark.parametrize("medium", ["CPU", "CPU_PINNED", "STORAGE", "DISK", "EXTERNAL"])
def test_v5_other_media_are_not_counted_as_gpu_cached(medium):
    mirror = mirror_of(stored(medium=medium))
    assert (mirror.tokens, mirror.block_size) == (0, None)
    mirror = mirror_of(stored(medium="GPU"), stored(medium=medium), removed(1, 2, 3, medium=medium))
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE
    mirror.apply([removed(1, 2, 3, medium="gpu")])
    assert mirror.tokens == 0


def test_v3_all_blocks_cleared_empties_the_rank():
    mirror = mirror_of(stored(), AllBlocksCleared())
    assert mirror.tokens == 0
    mirror.apply([stored()], rank=1)
    mirror.apply([AllBlocksCleared()], rank=0)
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE


def test_the_last_token_is_always_computed():
    mirror = mirror_of(stored())
    assert mirror.cached_tokens(PROMPT) == 2 * SIZE
    assert mirror.cached_tokens(PROMPT[:SIZE]) == 0
    assert mirror.cached_tokens(()) == 0


def test_a_missing_block_ends_the_prefix_but_not_the_blocks_behind_it():
    mirror = mirror_of(stored(), removed(1))
    keys = mirror.keys(PROMPT)
    assert [mirror.holds([key]) for key in keys] == [False, True, True]
    assert mirror.leading(keys) == mirror.cached_tokens(PROMPT) == 0
    mirror.apply([stored((1,), None, PROMPT[:SIZE])])
    assert mirror.leading(keys) == 3


def test_orphans_are_counted_and_never_reusable():
    mirror = mirror_of(stored((2, 3), 1, PROMPT[SIZE:]), stored((4,), 3, PROMPT[:SIZE]))
    assert (mirror.orphans, mirror.tokens) == (3, 0)
    mirror.apply([stored((1,), None, PROMPT[:SIZE])])
    assert (mirror.orphans, mirror.cached_tokens((*PROMPT, 0))) == (3, SIZE)
    mirror.apply([stored((2, 3), 1, PROMPT[SIZE:])])  # stored again, and now its parent is known
    assert (mirror.orphans, mirror.cached_tokens((*PROMPT, 0))) == (1, 3 * SIZE)
    mirror.apply([removed(2, 3)])
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE


def test_tenants_share_no_key():
    salted = stored(extra_keys=(("a",), None, None))
    mirror = mirror_of(salted)
    assert mirror.cached_tokens((*PROMPT, 0), salt="a") == 3 * SIZE
    assert mirror.cached_tokens((*PROMPT, 0), salt="b") == mirror.cached_tokens((*PROMPT, 0)) == 0
    assert not set(mirror.keys(PROMPT, salt="a")) & (set(mirror.keys(PROMPT)) | set(mirror.keys(PROMPT, salt="b")))


def test_a_salt_given_sglang_s_way_is_the_same_key():
    mirror = mirror_of(
        stored((1, 2), tokens=PROMPT[: 2 * SIZE], cache_salt="a"),
        stored((3,), 2, PROMPT[2 * SIZE :], cache_salt="a"),
    )
    assert mirror.cached_tokens((*PROMPT, 0), salt="a") == 3 * SIZE
    assert mirror.cached_tokens((*PROMPT, 0)) == 0


def test_an_engine_that_hides_the_salt_has_no_match_for_a_salted_prompt():
    mirror = mirror_of(stored(), stored((11, 12, 13)))
    assert mirror.cached_tokens((*PROMPT, 0), salt="a") == 0
    assert mirror.orphans == 3  # two hashes for one key: only the first counts
    mirror.apply([removed(1, 2, 3)])
    assert mirror.tokens == 0
    mirror.check_integrity()


@pytest.mark.parametrize(
    "event",
    [
        stored(lora_id=1, lora_name="adapter"),
        stored(lora_id=1, lora_name="adapter", extra_keys=(("adapter",),) * 3),
        stored(lora_id="adapter"),
    ],
)
def test_an_adapter_is_part_of_the_key(event):
    mirror = mirror_of(event)
    assert mirror.cached_tokens((*PROMPT, 0), lora="adapter") == 3 * SIZE
    assert mirror.cached_tokens((*PROMPT, 0)) == mirror.cached_tokens((*PROMPT, 0), lora="other") == 0


def test_an_image_is_part_of_the_key():
    mirror = mirror_of(stored(extra_keys=(None, (("image", 4),), None)))
    assert mirror.cached_tokens((*PROMPT, 0)) == SIZE


def test_hybrid_models_count_what_all_whole_prefix_groups_hold():
    full, window = {"kv_cache_spec_kind": "full_attention"}, {"kv_cache_spec_kind": "sliding_window"}
    mirror = mirror_of(stored(group_idx=0, **full), stored(group_idx=1, **window))
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE
    mirror.apply([removed(1, 2, 3, group_idx=1)])
    assert mirror.cached_tokens((*PROMPT, 0)) == 3 * SIZE
    mirror.apply([stored((1, 2), None, PROMPT[: 2 * SIZE], group_idx=2, kv_cache_spec_kind="mla_attention")])
    assert mirror.cached_tokens((*PROMPT, 0)) == 2 * SIZE
    mirror.apply([removed(1, group_idx=0)])
    assert mirror.cached_tokens((*PROMPT, 0)) == 0


def test_a_prefix_is_as_long_as_one_single_rank_holds_it():
    mirror = KVMirror()
    mirror.apply([stored((1,), None, PROMPT[:SIZE])], rank=0)
    mirror.apply([stored(), removed(1)], rank=1)
    keys = mirror.keys(PROMPT)
    assert all(mirror.holds([key]) for key in keys)
    assert mirror.leading(keys) == 1
    mirror.clear(rank=0)
    assert mirror.leading(keys) == 0
    mirror.clear()
    assert mirror.tokens == 0


def test_hashes_are_told_apart_by_value_and_type():
    mirror = mirror_of(stored((-1, b"\xff" * 8, 2**64 - 1)))
    mirror.apply([removed(2**64 - 1)])
    assert mirror.cached_tokens((*PROMPT, 0)) == 2 * SIZE


def test_the_block_size_is_the_largest_that_was_seen():
    mirror = mirror_of(stored((9,), None, PROMPT[:2], 2), stored())  # a begun block first
    assert (mirror.block_size, mirror.tokens) == (SIZE, 3 * SIZE)
    mirror.apply([stored((9,), None, PROMPT[:2], 2), removed(9)])
    assert (mirror.tokens, mirror.ignored) == (3 * SIZE, 2)
    mirror.clear()
    assert mirror.block_size is None
    assert mirror.keys(PROMPT) == ()
    assert mirror.cached_tokens(PROMPT) == 0


def test_a_given_block_size_stays():
    mirror = KVMirror(SIZE)
    mirror.apply([stored((1,), None, PROMPT[: 2 * SIZE], 2 * SIZE)])
    assert (mirror.block_size, mirror.tokens, mirror.ignored) == (SIZE, 0, 1)
    mirror.clear()
    assert mirror.block_size == SIZE
    for wrong in (0, True, "16"):
        with pytest.raises(ConfigError, match="block_size"):
            KVMirror(wrong)


def test_the_mirror_is_live_when_nobody_has_suspended_it():
    mirror = KVMirror()
    assert mirror.live
    mirror.suspend("a gap", source="events of rank 0")
    mirror.suspend("drift")
    mirror.resume(source="events of rank 0")
    assert not mirror.live
    assert mirror.suspensions == {"caller": "drift"}
    mirror.resume()
    mirror.resume()
    assert mirror.live


def test_keys_refuse_what_is_no_token():
    mirror = mirror_of(stored())
    with pytest.raises(TypeError):
        mirror.keys(["a"] * SIZE)
    with pytest.raises(OverflowError):
        mirror.keys([1 << 31] * SIZE)


def test_integrity_check_sees_lost_copies_and_keys():
    mirror = mirror_of(stored())
    mirror._ranks[0]._by_key.popitem()
    with pytest.raises(IntegrityError, match="not found by its key"):
        mirror.check_integrity()
    mirror = mirror_of(stored())
    mirror._ranks[0]._blocks[1].copies.clear()
    with pytest.raises(IntegrityError, match="copies"):
        mirror.check_integrity()
    mirror = mirror_of(stored())
    del mirror._ranks[0]._blocks[1]
    with pytest.raises(IntegrityError, match="keys of blocks that left"):
        mirror.check_integrity()


def test_an_earlier_moment_can_be_asked_about():
    engine, mirror = Engine(), KVMirror()
    tokens = list(range(13))
    before = mirror.moment
    engine.admit(tokens)
    mirror.apply(engine.take())
    stored = mirror.moment
    engine.reset()
    engine.admit(tokens[:8])
    mirror.apply(engine.take())
    assert mirror.cached_tokens(tokens, at=before) == 0
    assert mirror.cached_tokens(tokens, at=stored) == 12
    assert mirror.cached_tokens(tokens) == mirror.cached_tokens(tokens, at=mirror.moment) == 8
    mirror.clear()
    assert mirror.cached_tokens(tokens, at=stored) == 0  # nothing is known of the block size any more


def test_a_store_without_blocks_says_nothing():
    engine, mirror = Engine(), KVMirror()
    engine.admit(list(range(13)))
    mirror.apply(engine.take())
    mirror.apply([BlockStored(block_hashes=(), parent_block_hash=None, token_ids=(), block_size=2**40)])
    assert mirror.block_size == SIZE
    assert mirror.cached_tokens(list(range(13))) == 12


def test_all_blocks_cleared_forgets_the_block_size_as_well():
    mirror = KVMirror()
    store = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=tuple(range(8)), block_size=8)
    mirror.apply([store, AllBlocksCleared()])
    assert mirror.block_size is None


def test_keys_that_are_nested_too_deeply_make_orphans():
    nested: list = []
    for _ in range(5_000):
        nested = [nested]
    mirror = KVMirror()
    store = BlockStored(
        block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_size=2, extra_keys=((nested,),)
    )
    mirror.apply([store])
    assert mirror.orphans == 1
    assert mirror.holds(()) and not mirror.holds(mirror.keys([1, 2]))


def test_a_forked_child_trusts_nothing_until_the_source_resumes_there(caplog):
    mirror = mirror_of(stored())
    mirror.suspend("no batch has come", source="events")
    mirror.resume(source="events")

    def child():
        seen = [mirror.live, mirror.tokens, mirror.block_size, dict(mirror.suspensions).keys() == {"events"}]
        mirror.suspend("no batch has come", source="events")
        mirror.apply([stored()])
        mirror.resume(source="events")
        mirror.check_integrity()
        return seen, mirror.live, mirror.tokens, [record.levelname for record in caplog.records]

    with mirror._lock:  # a thread that follows events may hold it while another one forks
        assert in_child(child) == ([False, 0, None, True], True, 3 * SIZE, ["WARNING"])
    assert (mirror.live, mirror.tokens) == (True, 3 * SIZE)


def test_a_mirror_that_the_caller_feeds_is_resumed_by_the_caller_after_a_fork():
    mirror = mirror_of(stored())

    def child():
        before = mirror.live
        mirror.resume()
        return before, mirror.live, mirror.tokens

    assert in_child(child) == (False, True, 0)


def test_a_mirror_that_was_told_nothing_survives_a_fork(caplog):
    mirror = KVMirror(SIZE)

    def child():
        mirror.apply([stored()])
        return mirror.live, mirror.tokens, len(caplog.records)

    assert in_child(child) == (True, 3 * SIZE, 0)
