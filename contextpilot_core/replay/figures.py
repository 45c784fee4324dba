"""Figures of reuse (docs: "Replay" and "Upper bound"). Tokens are block tokens; shares are fractions of 1."""

from collections.abc import Sequence

import numpy as np

MAX_CONTEXTS = 20_000
"""Contexts up to which `upper_bound` is computed: it looks at every pair."""


def reuse(reused_tokens: int, total_tokens: int) -> float:
    """Return the share of block tokens that were found in the prefix cache; 0.0 of nothing.

    It may be negative when the tokens of the notes were taken off.
    """
    return reused_tokens / total_tokens if total_tokens else 0.0


def upper_bound(contexts: Sequence[Sequence[int]], weights: Sequence[int]) -> int | None:
    """Return tokens that no order of blocks and requests can exceed, or None above 20,000 contexts.

    A request reuses at most what it shares with one earlier request, and these links form a forest: the maximum
    spanning forest over pairwise shared tokens (docs: "Upper bound"). Loose, because a request has one order only.
    ``weights``: tokens by block id; ids are 0..len(weights)-1.
    """
    size = len(contexts)
    if size > MAX_CONTEXTS:
        return None
    lengths = np.fromiter(map(len, contexts), dtype=np.int64, count=size)
    blocks = np.fromiter((block for context in contexts for block in context), dtype=np.int64, count=lengths.sum())
    tokens = np.asarray(weights, dtype=np.float64)
    postings = np.repeat(np.arange(size), lengths)[np.argsort(blocks, kind="stable")]
    ends = np.cumsum(np.bincount(blocks, minlength=len(tokens)))
    holders = np.split(postings, ends[:-1]) if len(tokens) else []

    # Prim's algorithm on rows of shared tokens that are made when needed: no N x N matrix.
    nearest = np.zeros(size)  # by context: the most tokens shared with the tree so far; -1 inside the tree
    total = 0
    for _ in range(size):
        newest = int(nearest.argmax())
        total += int(nearest[newest])
        held = [holders[block] for block in contexts[newest]]
        if held:
            shares = np.repeat(tokens[list(contexts[newest])], [len(members) for members in held])
            shared = np.bincount(np.concatenate(held), weights=shares, minlength=size)
            np.maximum(nearest, shared, out=nearest, where=nearest >= 0)
        nearest[newest] = -1
    return total
