"""What `engines` sends: three kinds of traffic with real questions, and their prompts in three ways.

All arms share one layout, and the answers in a history are those of the data set, so that an arm differs from another
in documents, their order, hints and notes alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from benchmarks import peer
from benchmarks.data import Turn, conversations, corpus, questions
from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.plan.plan import Plan
from contextpilot_core.types import ContextRequest, Message
from contextpilot_integrations.demo.arms import PLAIN

INSTRUCTIONS = "Answer in one short sentence from the documents."
Prompt = tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Turns of sessions, which come in turns; ``together``: all are there at once, and may be sent in any order."""

    trace: str
    sessions: list[list[Turn]]
    together: bool = False

    def arrivals(self) -> Iterator[tuple[int, Turn]]:
        """Yield session number and turn in the order of arrival."""
        for turns in zip_longest(*self.sessions):
            for number, turn in enumerate(turns):
                if turn is not None:
                    yield number, turn

    def texts(self, documents: Sequence[str]) -> list[str]:
        """Return the texts of documents."""
        return [corpus(self.trace)[document].text or "" for document in documents]


def workloads() -> dict[str, Workload]:
    """Return the kinds of traffic, as much of each as two CPU cores answer in a minute."""
    return {
        "multi-session": _multi_session(stories=2, users=6, top_k=4),
        "multi-turn": _multi_turn(sessions=2, turns=3, top_k=3),
        "hybrid": _hybrid(sessions=3, turns=3, top_k=3),
    }


def _multi_session(stories: int, users: int, top_k: int) -> Workload:
    """Single questions of different users, on a few stories; the source groups questions by story."""
    name = "narrativeqa.trace.dense"
    asked, by_story = questions(name, top_k), dict[str, list[Turn]]()
    for question in asked:
        story = question.documents[0].rsplit("-", 1)[0]
        by_story.setdefault(story, []).append(Turn(question.documents, question.text, ""))
    chosen = [turns[:users] for turns in by_story.values() if len(turns) >= users][:stories]
    return Workload(
        trace=name, sessions=[[turn] for turns in zip(*chosen, strict=True) for turn in turns], together=True
    )


def _multi_turn(sessions: int, turns: int, top_k: int) -> Workload:
    """A few conversations, each on its own."""
    name = "mtrag_full.conversations.hybrid_rewrite"
    return Workload(trace=name, sessions=[each[:turns] for each in conversations(name, top_k)[:sessions]])


def _hybrid(sessions: int, turns: int, top_k: int) -> Workload:
    """Several users who ask about the same memory, in several turns each."""
    name = "locomo.conversations.dense"
    memory = conversations(name, top_k)[0]
    return Workload(trace=name, sessions=[memory[number * turns : (number + 1) * turns] for number in range(sessions)])


def plain(workload: Workload, kv_block: int) -> list[Prompt]:
    """Retrieval order, in the order of arrival; every turn repeats its documents after the whole history."""
    return _one_by_one(workload, ReuseEngine(PLAIN))


def ours(workload: Workload, kv_block: int) -> list[Prompt]:
    """Planned and scheduled as a batch where all are there at once, else one after the other."""
    engine = ReuseEngine(EngineConfig(kv_block=kv_block))
    if not workload.together:
        return _one_by_one(workload, engine)
    batch = engine.plan_batch(
        ContextRequest(blocks=workload.texts(turn.documents), query=turn.question, instructions=INSTRUCTIONS)  # type: ignore[arg-type]
        for _, turn in workload.arrivals()
    )
    return [plan.messages for plan in batch.in_schedule()]


def theirs(workload: Workload, kv_block: int) -> list[Prompt]:
    """The public contextpilot 0.5.0: its order and note, its schedule of a batch, its hints in later turns."""
    engine = ReuseEngine(PLAIN)
    if workload.together:
        turns = [turn for _, turn in workload.arrivals()]
        answer = peer.run("batch", contexts=[list(turn.documents) for turn in turns])
        return [
            _plan(engine, workload, documents, [note, turns[number].question], ()).messages
            for number, documents, note in answer["sent"]
        ]
    answers = peer.run("turns", conversations=[[list(turn.documents) for turn in each] for each in workload.sessions])
    return _one_by_one(workload, engine, answers)


ARMS = {"plain": plain, "ours": ours, "contextpilot 0.5.0": theirs}


def _one_by_one(
    workload: Workload, engine: ReuseEngine, answers: Sequence[Sequence[dict[str, Any]]] | None = None
) -> list[Prompt]:
    prompts: list[Prompt] = []
    histories: list[list[Message]] = [[] for _ in workload.sessions]
    coming = None if answers is None else [iter(each) for each in answers]
    for number, turn in workload.arrivals():
        told = {"documents": turn.documents, "notes": []} if coming is None else next(coming[number])
        plan = _plan(engine, workload, told["documents"], [*told["notes"], turn.question], histories[number])
        prompts.append(plan.messages)
        histories[number] += [plan.messages[-1], {"role": "assistant", "content": turn.answer}]
    return prompts


def _plan(
    engine: ReuseEngine, workload: Workload, documents: Sequence[str], lines: Sequence[str], history: Sequence[Message]
) -> Plan:
    query = "\n".join(lines)
    return engine.plan(workload.texts(documents), query=query, instructions=INSTRUCTIONS, messages=history)
