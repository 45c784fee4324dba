"""Keys of KV blocks: equal for equal prefixes and for nothing else, and closed to those without the seal."""

import hashlib
from array import array
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.mirror.keys import KEY_BYTES, ROOT, chain, closed, opened, prompt_extras

tokens = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3), max_size=20)
extras = st.lists(st.sampled_from([None, (), ("a",), (1,), ("1",), (("a",),), ("a", "b")]), max_size=4)


def keys(token_ids, size=2, extra=(), parent=ROOT):
    return list(chain(parent, token_ids, size, extra))


def test_a_key_is_the_digest_of_size_parent_tokens_and_extras():
    first = hashlib.blake2b((2).to_bytes(8, "little") + ROOT + array("i", [7, 8]).tobytes(), digest_size=KEY_BYTES)
    assert keys([7, 8]) == [first.digest()]
    content = (1).to_bytes(8, "little") + first.digest() + array("i", [9]).tobytes() + b"('tenant',)"
    second = hashlib.blake2b(content, digest_size=KEY_BYTES)
    assert keys([9], 1, [("tenant",)], first.digest()) == [second.digest()]


@given(tokens, tokens, st.integers(1, 4), extras)
def test_equal_keys_mean_equal_prefixes(one, other, size, extra):
    mine, theirs = keys(one, size, extra), keys(other, size, extra)
    assert (len(mine), len(theirs)) == (len(one) // size, len(other) // size)
    for place, (a, b) in enumerate(zip(mine, theirs, strict=False), start=1):
        assert (a == b) == (one[: place * size] == other[: place * size])
    assert len(set(mine)) == len(mine)


@given(tokens, st.integers(1, 4), extras, st.integers(0, 5))
def test_a_chain_may_be_continued_anywhere(token_ids, size, extra, blocks):
    whole = keys(token_ids, size, extra)
    head = keys(token_ids[: blocks * size], size, extra)
    assert whole[: len(head)] == head
    assert (
        keys(token_ids[len(head) * size :], size, extra[len(head) :], head[-1] if head else ROOT) == whole[len(head) :]
    )


@given(extras, extras)
def test_extras_count_block_by_block_and_empty_ones_are_none(one, other):
    def said(extra):
        return [extra[place] if place < len(extra) and extra[place] else None for place in range(4)]

    mine, theirs = keys([0] * 8, 2, one), keys([0] * 8, 2, other)
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True), start=1):
        assert (a == b) == (said(one)[:place] == said(other)[:place])


def test_lists_and_tuples_of_a_decoder_are_one_extra():
    assert keys([1, 2], 2, [["image", [1, 2]]]) == keys([1, 2], 2, [("image", (1, 2))])
    assert keys([1, 2], 2, [("image", b"\xff", "\ud800")]) != keys([1, 2], 2, [("image", b"\xfe", "\ud800")])


def test_the_block_size_is_part_of_the_key():
    assert not set(keys([1, 2, 3, 4], 2)) & set(keys([1, 2, 3, 4], 4))
    assert keys([1, 2, 3], 4) == []


def test_only_whole_numbers_of_32_bits_are_tokens():
    with pytest.raises(TypeError):
        keys(["a", "b"])
    with pytest.raises(TypeError):
        keys([1.0, 2.0])
    with pytest.raises(OverflowError):
        keys([1 << 31, 0])
    with pytest.raises(OverflowError):
        keys([0, -(1 << 31) - 1])


def test_extras_of_a_prompt():
    assert prompt_extras(3, salt=None, lora=None) == [(), (), ()]
    assert prompt_extras(3, salt="s", lora=None) == [("s",), (), ()]
    assert prompt_extras(2, salt="s", lora=7) == [(7, "s"), (7,)]
    assert prompt_extras(2, salt="", lora=0) == [(0, ""), (0,)]
    assert prompt_extras(0, salt="s", lora="l") == []


def seal(key):
    return lambda data: blake2b(data, key=key, digest_size=16).digest()


@given(st.lists(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES), max_size=6))
def test_closed_keys_are_opened_by_the_same_seal_only(some):
    shut = closed(some, seal(b"a"))
    assert opened(shut, seal(b"a")) == tuple(some)
    assert len(shut) == KEY_BYTES * (1 + len(some))
    if some:
        assert opened(shut, seal(b"b")) != tuple(some)
        assert closed(some, seal(b"b")) != shut
        assert not any(key in shut for key in some)


def test_the_mask_differs_wherever_the_keys_do():
    one, other = bytes(KEY_BYTES), bytes([255]) * KEY_BYTES
    both, swapped = closed([one, other], seal(b"a")), closed([other, one], seal(b"a"))
    difference = bytes(a ^ b for a, b in zip(both, swapped, strict=True))
    assert difference[KEY_BYTES:] != bytes([255]) * 2 * KEY_BYTES  # an equal mask would show what the keys differ in
    assert closed([one], seal(b"a"))[KEY_BYTES:] != both[KEY_BYTES : 2 * KEY_BYTES]
