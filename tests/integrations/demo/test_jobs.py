"""Both jobs over one material, and the promise of the demo over many seeds: a client with a prefix cache, no model."""

from collections.abc import Callable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from platform import python_version
from types import SimpleNamespace
from typing import Any

import pytest

from contextpilot_core.errors import ConfigError
from tests.conftest import require

require("rank_bm25")
require("rich")

from rich.console import Console  # noqa: E402

from contextpilot_integrations.demo.arms import BATCH_ARMS, CHAT_ARMS  # noqa: E402
from contextpilot_integrations.demo.endpoint import Endpoint  # noqa: E402
from contextpilot_integrations.demo.jobs import FULL, Material, Scale, gather, run_jobs  # noqa: E402
from contextpilot_integrations.demo.page.prompts import pieces, prompt_text  # noqa: E402
from contextpilot_integrations.demo.questions import (  # noqa: E402
    committed_questions,
    questions_about,
    read_questions,
)
from contextpilot_integrations.demo.results import Run  # noqa: E402

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


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("tea", "coffee", "cocoa"):
        text = f"# Brewing {name}\n\n{name} needs water and a cup.\n\n# Serving {name}\n\nServe {name} with milk."
        (folder / f"{name}.md").write_text(text, "utf-8")
    return folder


def test_the_material_is_what_was_given_and_else_the_committed_one(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "q.txt").write_text("Mine?\n", "utf-8")
    assert material().bank == committed_questions()
    assert material().name == f"{len(material().chunks)} passages of the Python {python_version()} language reference"
    own = gather(docs, None)
    assert (own.name, own.bank) == ("6 passages of the folder notes", questions_about(own.chunks))
    asked = gather(docs, tmp_path / "q.txt")
    assert (asked.chunks, asked.bank) == (own.chunks, read_questions(tmp_path / "q.txt"))
    assert gather(None, tmp_path / "q.txt").chunks == material().chunks


def test_material_that_cannot_be_used_is_refused(tmp_path: Path, docs: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        gather(tmp_path / "absent", None)
    with pytest.raises(ConfigError, match="cannot be read"):
        gather(docs, tmp_path / "absent.txt")


def test_every_arm_starts_with_an_empty_server_where_it_can_be_emptied(docs: Path) -> None:
    client, cleared = CachingClient(), list[int]()

    def clear() -> None:
        cleared.append(len(client.seen))
        client.clear()

    scale = Scale(topics=2, users=2, turns=2, documents=3, answer_tokens=8)
    run = run_jobs(gather(docs, None), scale, 0, endpoint(client, clear), Console(quiet=True))
    assert cleared == [0, 4, 4, 2, 2]
    assert [arm.name for arm in (*run.batch, *run.chat)] == [*BATCH_ARMS, *CHAT_ARMS]
    assert {len(arm.sent) for arm in run.batch} == {4} and {len(arm.sent) for arm in run.chat} == {2}
    assert (run.model, run.documents) == ("none (a prefix cache)", "6 passages of the folder notes")
    settings = dict(run.settings)
    assert "started anew before every arm" in settings["Cache"]
    assert settings["Questions"].startswith("seed 0: 2 topics, 2 users each")
    assert "at most 8 tokens" in settings["Answers"] and "best 3 passages" in settings["Retrieval"]


def test_where_nothing_can_be_emptied_the_settings_say_so_and_no_arm_finds_anothers_prompts(docs: Path) -> None:
    client = CachingClient()
    scale = Scale(topics=1, users=2, turns=1, documents=3, answer_tokens=8)
    run = run_jobs(gather(docs, None), scale, 0, endpoint(client, None), Console(quiet=True))
    assert "cannot be emptied from here" in dict(run.settings)["Cache"]
    for arm in (*run.batch, *run.chat):
        assert (
            arm.sent[0].cached_tokens == len("<system>\nRun ") // CHARACTERS_PER_TOKEN or not arm.sent[0].cached_tokens
        )


def endpoint(client: CachingClient, clear: Callable[[], None] | None) -> Endpoint:
    return Endpoint(client=client, model="none", where="a prefix cache", clear=clear)


def test_the_tables_of_both_jobs_are_shown(docs: Path) -> None:
    console = Console(file=StringIO(), width=100)
    client = CachingClient()
    scale = Scale(topics=1, users=2, turns=1, documents=3, answer_tokens=8)
    run_jobs(gather(docs, None), scale, 0, endpoint(client, client.clear), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert printed.index("Batch: questions of several users") < printed.index("Chat: one conversation")
    assert "·" not in printed, "every answer is there"
