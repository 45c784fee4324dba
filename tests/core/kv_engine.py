"""A plain model of a serving engine's prefix cache, which publishes what real ones publish; and steps to drive it."""

import hashlib
from collections import Counter

from hypothesis import strategies as st

from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored

SIZE = 4


def name_of(prefix, salt=None):
    """The engine's hash of a block: opaque for us, of no relation to our keys."""
    return int.from_bytes(hashlib.md5(repr((prefix, salt)).encode()).digest()[:8], "big")


class Engine:
    """One rank: physical blocks by content and group. Truth is what `held` says."""

    def __init__(self, groups=(0,), size=SIZE):
        self.groups = groups
        self.size = size
        self.copies = Counter()  # (prefix, salt, group) -> physical blocks
        self.events = []

    def held(self, prefix, salt=None):
        return all(self.copies[prefix, salt, group] for group in self.groups)

    def hit(self, tokens, salt=None):
        """Leading blocks of a prompt that it would take from the cache."""
        full = max(0, len(tokens) - 1) // self.size
        return next((n for n in range(full) if not self.held(tuple(tokens[: (n + 1) * self.size]), salt)), full)

    def admit(self, tokens, salt=None, lookup=True):
        """Compute a prompt; ``lookup=False``: at the same time as another, so nothing is found in the cache."""
        first = self.hit(tokens, salt) if lookup else 0
        last = len(tokens) // self.size
        if first == last:
            return
        prefixes = [tuple(tokens[: (n + 1) * self.size]) for n in range(last)]
        for group in self.groups:
            self.copies.update((prefix, salt, group) for prefix in prefixes[first:])
            self.events.append(
                BlockStored(
                    block_hashes=tuple(name_of(prefix, salt) for prefix in prefixes[first:]),
                    parent_block_hash=name_of(prefixes[first - 1], salt) if first else None,
                    token_ids=tuple(tokens[first * self.size : last * self.size]),
                    block_size=self.size,
                    medium="GPU",
                    extra_keys=tuple((salt,) if n == 0 and salt else None for n in range(first, last)),
                    group_idx=group,
                    kv_cache_spec_kind="full_attention",
                )
            )

    def evict(self, pick):
        """Drop one physical block: the ``pick``-th of those there are."""
        there = sorted(self.copies.elements(), key=repr)
        if there:
            prefix, salt, group = there[pick % len(there)]
            self.copies[prefix, salt, group] -= 1
            name = name_of(prefix, salt)
            self.events.append(BlockRemoved(block_hashes=(name,), medium="GPU", group_idx=group))

    def reset(self):
        self.copies.clear()
        self.events.append(AllBlocksCleared())

    def take(self):
        """The events since the last call, as one batch."""
        events, self.events = self.events, []
        return events


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(lambda parts: [p for p in parts for _ in range(SIZE)])


steps = st.one_of(
    st.tuples(st.just("admit"), prompts, st.sampled_from([None, "tenant"]), st.booleans()),
    st.tuples(st.just("evict"), st.integers(0, 50)),
    st.tuples(st.just("reset")),
)


def run(engine, step):
    getattr(engine, step[0])(*step[1:])
    return engine.take()


def compare(mirror, engines, exact):
    """No key may be cached that no engine holds; ``exact``: and the other way round."""
    mirror.check_integrity()
    seen = {(prefix, salt) for engine in engines for prefix, salt, _ in engine.copies}
    for prefix, salt in seen:
        keys = mirror.keys(prefix, salt=salt)
        held = any(engine.held(prefix, salt) for engine in engines)
        assert not keys or mirror.holds(keys[-1:]) <= held
        hit = max(engine.hit(prefix, salt) for engine in engines) * SIZE
        assert mirror.cached_tokens(prefix, salt=salt) <= hit
        if exact and keys:
            assert mirror.holds(keys[-1:]) == held
            assert mirror.cached_tokens(prefix, salt=salt) == hit
