"""De-duplication over the turns of conversations: tokens that are not sent again, and documents that get lost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.progress import track

from benchmarks import peer
from benchmarks.data import Turn, conversations, corpus
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.plan.plan import Plan
from contextpilot_core.types import Message
from contextpilot_integrations.demo.arms import PLAIN

TRACES = (
    "mtrag.conversations.bm25_rewrite",
    "mtrag.conversations.bm25_questions",
    "mtrag_full.conversations.hybrid_rewrite",
    "locomo.conversations.dense",
    "locomo_mem.conversations.bm25",
)
HISTORIES: dict[str, int | None] = {"whole": None, "last two turns": 4}
"""Messages of the history that a prompt still holds."""


@dataclass
class Total:
    """Over all turns. ``tokens``: of the messages with documents, characters // 4; ``lost``: documents not shown."""

    documents: int = 0
    tokens: int = 0
    lost: int = 0
    first_lost: str | None = None


Sender = Callable[[Turn, Sequence[Message]], tuple[Plan, list[tuple[str, ...]]]]
"""Plans a turn after its history; also returns the texts that the prompt has to show, as the parts of each document."""


def measure() -> dict[str, Any]:
    """Send every conversation in three ways, with whole and with trimmed histories."""
    return {
        "top_k": 15,
        "traces": {
            name: {history: _arms(name, keep) for history, keep in HISTORIES.items()}
            for name in track(TRACES, "conversations")
        },
    }


def _arms(name: str, keep: int | None) -> dict[str, Any]:
    given = conversations(name)
    answers = peer.run("turns", conversations=[[list(turn.documents) for turn in turns] for turns in given])
    arms: dict[str, Callable[[int], Sender]] = {
        "plain": lambda _: _ours(name, ReuseEngine(PLAIN)),
        "ours": lambda _: _ours(name, ReuseEngine(EngineConfig())),
        "peer": lambda number: _peer(name, answers[number]),
    }
    return {arm: asdict(_total(given, sender, keep)) for arm, sender in arms.items()}


def _total(given: Sequence[Sequence[Turn]], sender: Callable[[int], Sender], keep: int | None) -> Total:
    total = Total()
    for number, turns in enumerate(given):
        history: list[Message] = []
        send = sender(number)
        for place, turn in enumerate(turns):
            shown = history if keep is None else history[-keep:]
            plan, needed = send(turn, shown)
            prompt = "\n\n".join(str(message["content"]) for message in plan.messages if message["role"] == "user")
            lost = sum(any(part not in prompt for part in parts) for parts in needed)
            if lost and total.first_lost is None:
                total.first_lost = f"conversation {number}, turn {place}"
            total.documents += len(turn.documents)
            total.tokens += len(str(plan.messages[-1]["content"])) // 4
            total.lost += lost
            history += [plan.messages[-1], {"role": "assistant", "content": turn.answer}]
    return total


def _ours(name: str, engine: ReuseEngine) -> Sender:
    documents = corpus(name)

    def send(turn: Turn, history: Sequence[Message]) -> tuple[Plan, list[tuple[str, ...]]]:
        texts = [documents[identity].text or "" for identity in turn.documents]
        plan = engine.plan(texts, query=turn.question, messages=history)
        return plan, [tuple(segment.text for segment in run) for run in plan.segments]

    return send


def _peer(name: str, answers: Sequence[dict[str, list[str]]]) -> Sender:
    """Render what the other package wants to be sent in our layout, its note or its hints before the question."""
    documents, engine = corpus(name), ReuseEngine(PLAIN)
    coming: Iterator[dict[str, list[str]]] = iter(answers)

    def send(turn: Turn, history: Sequence[Message]) -> tuple[Plan, list[tuple[str, ...]]]:
        answer = next(coming)
        texts = [documents[identity].text or "" for identity in answer["documents"]]
        plan = engine.plan(texts, query="\n".join([*answer["notes"], turn.question]), messages=history)
        return plan, [(documents[identity].text or "",) for identity in turn.documents]

    return send
