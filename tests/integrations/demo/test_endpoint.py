"""The demo's promise over many question seeds, on a client with a prefix cache of its own and no model."""

from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from contextpilot_integrations.demo.endpoint import Endpoint
from contextpilot_integrations.demo.jobs import FULL, Material, gather, run_jobs
from contextpilot_integrations.demo.page.prompts import pieces, prompt_text
from contextpilot_integrations.demo.results import Run
from tests.conftest import require

require("rank_bm25")

CHARACTERS_PER_TOKEN = 4


class CachingClient:
    """Keeps every prompt for ever, and reports the longest common beginning with an earlier one as cached."""

    def __init__(self) -> None:
        self.chat = self.completions = self
        self.seen: list[str] = []

    def create(self, *, messages: list[dict[str, Any]], **options: Any) -> Iterator[Any]:
        text = prompt_text(messages)
        cached = max((common_prefix(text, other) for other in self.seen), default=0)
        self.seen.append(text)
        usage = {
            "prompt_tokens": len(text) // CHARACTERS_PER_TOKEN,
            "prompt_tokens_details": {"cached_tokens": cached // CHARACTERS_PER_TOKEN},
        }
        delta = SimpleNamespace(content="An answer of a usual length, as a small model would give it.", tool_calls=None)
        yield SimpleNamespace(choices=[SimpleNamespace(index=0, delta=delta, finish_reason="stop")], usage=None)
        yield SimpleNamespace(choices=[], usage=usage)

    def clear(self) -> None:
        self.seen.clear()


def common_prefix(left: str, right: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@cache
def material() -> Material:
    return gather(None, None)


@pytest.fixture(scope="module")
def run_with() -> Callable[[int], Run]:
    @cache
    def run(seed: int) -> Run:
        client = CachingClient()
        endpoint = Endpoint(client=client, model="none", where="a prefix cache", clear=client.clear)
        return run_jobs(material(), FULL, seed, endpoint, Console(quiet=True))

    return run


@pytest.mark.parametrize("seed", range(2))
def test_the_promise_of_the_batch(run_with: Callable[[int], Run], seed: int) -> None:
    plain, ours = run_with(seed).batch
    assert ours.cached_tokens >= 2 * plain.cached_tokens
    assert ours.cached_tokens >= 0.2 * ours.prompt_tokens
    assert ours.prefilled_tokens < plain.prefilled_tokens


@pytest.mark.parametrize("seed", range(2, 12))
def test_the_batch_gains_with_whatever_questions(run_with: Callable[[int], Run], seed: int) -> None:
    plain, ours = run_with(seed).batch
    assert ours.cached_tokens >= 1.5 * plain.cached_tokens
    assert ours.prefilled_tokens < 0.95 * plain.prefilled_tokens


@pytest.mark.parametrize("seed", range(12))
def test_the_promise_of_the_chat(run_with: Callable[[int], Run], seed: int) -> None:
    plain, append_only, ours = run_with(seed).chat
    assert ours.prefilled_tokens <= 0.75 * plain.prefilled_tokens
    assert ours.prefilled_tokens < append_only.prefilled_tokens


@pytest.mark.parametrize("seed", range(2))
def test_every_batch_arm_sends_the_same_documents(run_with: Callable[[int], Run], seed: int) -> None:
    plain, ours = run_with(seed).batch
    for left, right in zip(plain.answers, ours.answers, strict=True):
        assert left.question == right.question
        assert titles(left.messages) == titles(right.messages)
        assert len(titles(left.messages)) == FULL.documents


def titles(messages: Any) -> list[str]:
    """Return the first lines of the documents, sorted: their texts may point to each other where they overlap."""
    return sorted(piece.text.partition("\n")[0] for piece in pieces(prompt_text(messages), 0) if piece.label)
