"""A capture of vLLM's own events, and what they mean in the plainest words."""

import gzip
import json


class PlainCache:
    """What the events mean, in the plainest words: how often each hash is there, and what stands before it."""

    def __init__(self):
        self.copies = {}
        self.texts = {None: ()}

    def apply(self, event):
        if event["type"] == "AllBlocksCleared":
            self.copies.clear()
        for number, name in enumerate(event.get("block_hashes", ())):
            if event["type"] == "BlockRemoved":
                self.copies[name] -= 1
                continue
            before = event["block_hashes"][number - 1] if number else event["parent_block_hash"]
            size = event["block_size"]
            tokens = tuple(event["token_ids"][number * size : (number + 1) * size])
            self.texts[name] = self.texts[before] + tokens
            self.copies[name] = self.copies.get(name, 0) + 1

    @property
    def cached(self):
        return {self.texts[name] for name, copies in self.copies.items() if copies}


def capture(data_dir):
    with gzip.open(data_dir / "vllm_kv_events.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def compare(mirror, cache):
    """Every text that was ever stored is cached in the mirror exactly when it is in the plain model."""
    cached = cache.cached
    for text in set(cache.texts.values()) - {()}:
        assert mirror.holds(mirror.keys(text)[-1:]) == (text in cached)
    assert mirror.tokens == len(cached) * (mirror.block_size or 0)
