"""A plain model of a serving engine's prefix cache, which publishes what real ones publish."""

import hashlib
from collections import Counter

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
