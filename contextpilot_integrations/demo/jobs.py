"""Both jobs over one material: what is asked, how much of it, and the run itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import python_version

from rich.console import Console

from contextpilot_core import ContextBlock
from contextpilot_integrations.demo.arms import (
    BATCH_ARMS,
    CHAT_ARMS,
    INSTRUCTIONS,
    Question,
    Steps,
    batch_steps,
    chat_steps,
    run_arm,
)
from contextpilot_integrations.demo.documents import python_reference, read_folder, terms
from contextpilot_integrations.demo.endpoint import Endpoint
from contextpilot_integrations.demo.live import JobTable, shown
from contextpilot_integrations.demo.questions import (
    QuestionBank,
    committed_questions,
    questions_about,
    read_questions,
    select,
)
from contextpilot_integrations.demo.results import Arm, Run
from contextpilot_integrations.retrieval import Bm25Index


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is asked: ``users`` questions on each of ``topics`` topics, and a chat of ``turns`` turns."""

    topics: int
    users: int
    turns: int
    documents: int
    answer_tokens: int


FULL = Scale(topics=3, users=4, turns=4, documents=6, answer_tokens=32)
QUICK = Scale(topics=2, users=3, turns=3, documents=5, answer_tokens=16)


@dataclass(frozen=True, kw_only=True)
class Material:
    """The documents, what they are called, and what could be asked about them."""

    chunks: Sequence[ContextBlock]
    name: str
    bank: QuestionBank


def gather(docs: Path | None, questions: Path | None) -> Material:
    """Read the documents and questions: the Python reference and the committed questions, or the user's own.

    Raises `ConfigError` for a folder or file that cannot be used.
    """
    chunks = python_reference() if docs is None else read_folder(docs)
    source = f"the Python {python_version()} language reference" if docs is None else f"the folder {docs.name}"
    if questions is not None:
        bank = read_questions(questions)
    else:
        bank = committed_questions() if docs is None else questions_about(chunks)
    return Material(chunks=chunks, name=f"{len(chunks)} passages of {source}", bank=bank)


def run_jobs(material: Material, scale: Scale, seed: int, endpoint: Endpoint, console: Console) -> Run:
    """Ask everything in every arm, with a live table per job."""
    asked = select(material.bank, seed=seed, topics=scale.topics, users=scale.users, turns=scale.turns)
    index = Bm25Index(material.chunks, tokenize=terms)

    def questions(texts: Sequence[str]) -> list[Question]:
        return [
            Question(number=number, text=text, blocks=tuple(hit.block for hit in index.search(text, scale.documents)))
            for number, text in enumerate(texts)
        ]

    batch = _run_job(
        "Batch: questions of several users", "Q", BATCH_ARMS, batch_steps, questions(asked.batch), endpoint, console
    )
    chat = _run_job("Chat: one conversation", "turn", CHAT_ARMS, chat_steps, questions(asked.chat), endpoint, console)
    return Run(
        batch=batch,
        chat=chat,
        model=f"{endpoint.model} ({endpoint.where})",
        documents=material.name,
        settings=_settings(scale, seed, endpoint, (*batch, *chat)),
    )


def _run_job(
    title: str,
    unit: str,
    arms: Sequence[str],
    steps: Callable[[str, Sequence[Question], Endpoint], Steps],
    questions: Sequence[Question],
    endpoint: Endpoint,
    console: Console,
) -> tuple[Arm, ...]:
    table = JobTable(title, [question.text for question in questions], arms, unit)
    done = list[Arm]()
    with shown(table, console):
        for arm in arms:
            if endpoint.clear is not None:
                endpoint.clear()
            table.start(arm)
            done.append(run_arm(arm, steps(arm, questions, endpoint), table.add))
    return tuple(done)


def _settings(scale: Scale, seed: int, endpoint: Endpoint, arms: Sequence[Arm]) -> tuple[tuple[str, str], ...]:
    emptied = (
        "the server is started anew before every arm, so each begins with nothing cached"
        if endpoint.clear is not None
        else "the server cannot be emptied from here; every arm's prompts start with a line of their own, so no arm "
        "finds anything of another"
    )
    return (
        ("Questions", f"seed {seed}: {scale.topics} topics, {scale.users} users each, in mixed order of arrival"),
        ("Retrieval", f"BM25, the best {scale.documents} passages for each question, the same in every arm"),
        ("Answers", f"temperature 0, at most {scale.answer_tokens} tokens; instructions: {INSTRUCTIONS}"),
        ("Prompts", "the same layout in every arm: documents under [Doc n] labels, then the question"),
        ("Batch, plain", "documents in retrieval order, requests in order of arrival"),
        ("Batch, ContextPilot", "documents ordered and requests scheduled by ReuseEngine.plan_batch, default settings"),
        ("Chat, plain", "documents in the current turn only; the history holds bare questions and answers"),
        ("Chat, append-only", "every prompt stays in the history with its documents; repeats are sent again"),
        ("Chat, ContextPilot", "ContextPilotClient, default settings: append-only, repeats become a hint"),
        ("Cache", emptied),
        ("Time", ", ".join(f"{arm.seconds:.0f} s" for arm in arms) + " for the arms, in this order"),
    )
