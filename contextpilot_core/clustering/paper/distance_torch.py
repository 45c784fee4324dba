"""All-pairs distances (eq. 1) on torch tensors, CPU or GPU; the contract is that of `distance`.

Torch is imported when a function is called, so that the package does without it.
"""

from collections.abc import Sequence
from typing import Any

from contextpilot_core.errors import MissingExtraError, TooManyContextsError

MAX_CONTEXTS = 20_000
"""Contexts that a method over all pairs accepts, as in `contextpilot_core.clustering.paper.distance`."""

_CHUNK = 1 << 23  # shared entries and buffer cells that are worked on at a time


def pairwise_distances(contexts: Sequence[Sequence[int]], alpha: float = 0.001, device: str = "cpu") -> Any:
    """Return the distances of all pairs as a float64 tensor [n * (n - 1) / 2] on ``device``, in ``pdist`` order.

    Raises:
        MissingExtraError: torch is not installed.
        TooManyContextsError: more than 20,000 contexts.
    """
    torch = _torch()
    size = len(contexts)
    if size > MAX_CONTEXTS:
        raise TooManyContextsError(
            f"{size} contexts are more than the {MAX_CONTEXTS} that all-pairs distances can hold; "
            'use strategy="greedy", which needs no distances'
        )
    options = {"dtype": torch.int64, "device": device}
    lengths = torch.tensor([len(context) for context in contexts], **options)
    blocks = torch.tensor([block for context in contexts for block in context], **options)
    rows = torch.repeat_interleave(torch.arange(size, **options), lengths)
    ranks = torch.tensor([rank for context in contexts for rank in range(len(context))], **options)

    postings = torch.argsort(blocks, stable=True)  # entries by block, then by context
    places = torch.empty_like(postings)
    places[postings] = torch.arange(len(postings), **options)
    later = torch.searchsorted(blocks[postings], blocks, right=True) - places - 1  # entries behind in the same posting

    result = torch.ones(size * (size - 1) // 2, dtype=torch.float64, device=device)
    for start, end, first, last in _chunks(lengths.tolist(), later.tolist(), size):
        mine = torch.arange(first, last, **options)
        partners = later[mine]
        left = torch.repeat_interleave(mine, partners)
        before = torch.cumsum(partners, 0) - partners
        steps = torch.arange(len(left), **options) - torch.repeat_interleave(before, partners)
        right = postings[places[left] + 1 + steps]
        cells = (rows[left] - start) * size + rows[right]
        shared = torch.bincount(cells, minlength=(end - start) * size)
        gaps = torch.bincount(cells, weights=(ranks[left] - ranks[right]).abs().double(), minlength=len(shared))
        met = torch.nonzero(shared).squeeze(1)
        row, column = met // size + start, met % size
        longest = torch.maximum(lengths[row], lengths[column]).double()
        count = shared[met].double()
        place = row * size - row * (row + 1) // 2 + column - row - 1
        result[place] = 1 - count / longest + alpha * gaps[met] / count
    return result


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("distances on tensors need torch: pip install 'contextpilot-rag[torch]'") from error
    return torch


def _chunks(lengths: list[int], later: list[int], size: int) -> list[tuple[int, int, int, int]]:
    """Cut the rows into (first row, end row, first entry, end entry), each of bounded cost."""
    chunks: list[tuple[int, int, int, int]] = []
    start = first = entry = cost = 0
    for row, length in enumerate(lengths):
        step = size + sum(later[entry : entry + length])
        if row > start and cost + step > _CHUNK:
            chunks.append((start, row, first, entry))
            start, first, cost = row, entry, 0
        entry += length
        cost += step
    if lengths:
        chunks.append((start, len(lengths), first, entry))
    return chunks
