"""The arms: the same questions and the same retrieved documents, sent in five ways."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine import ReuseEngine
from contextpilot_core.types import ContextBlock, ContextRequest, Message
from contextpilot_integrations.demo.results import Answer, Arm

INSTRUCTIONS = "Answer in one short sentence from the documents."
BATCH_ARMS = ("plain", "contextpilot")
CHAT_ARMS = ("plain", "plain_append_only", "contextpilot")
PLAIN = EngineConfig(strategy="none", note="none", dedup=False)
"""The engine with all its work switched off: retrieval order and every text in full, in the very same layout."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back for one prompt; None is unknown."""

    text: str
    prompt_tokens: int | None
    cached_tokens: int | None
    ttft_ms: float | None


class Model(Protocol):
    """Whatever answers a list of messages."""

    def __call__(self, messages: Sequence[Message], /) -> Reply:
        """Answer one prompt."""
        ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with the documents that were retrieved for it, best first."""

    number: int
    text: str
    blocks: tuple[ContextBlock, ...]


Steps = Iterator[Answer]
"""Answers of one arm as they come, in the order of sending."""


def batch_steps(arm: str, questions: Sequence[Question], model: Model, instructions: str) -> Steps:
    """Send independent questions: "plain" as they arrive, "contextpilot" planned and scheduled as one batch."""
    engine = ReuseEngine(PLAIN if arm == "plain" else None)
    batch = engine.plan_batch(
        [ContextRequest(blocks=each.blocks, query=each.text, instructions=instructions) for each in questions]
    )
    order = range(len(questions)) if arm == "plain" else batch.schedule
    for position in order:
        yield _ask(model, questions[position], batch.plans[position].messages)


def chat_steps(arm: str, questions: Sequence[Question], model: Model, instructions: str) -> Steps:
    """Send the turns of one conversation.

    "plain" is the common shape: documents in the current turn only, a history of bare questions and answers.
    "plain_append_only" and "contextpilot" keep every prompt as it was sent; the latter does not send a text twice.
    """
    engine = ReuseEngine(None if arm == "contextpilot" else PLAIN)
    history: list[Message] = []
    for question in questions:
        plan = engine.plan(question.blocks, query=question.text, instructions=instructions, messages=history)
        answer = _ask(model, question, plan.messages)
        yield answer
        kept = [*history, {"role": "user", "content": question.text}] if arm == "plain" else plan.messages
        history = [*kept, {"role": "assistant", "content": answer.text}]


def run_arm(name: str, steps: Steps, tell: Callable[[str, Answer], None]) -> Arm:
    """Run an arm to its end, telling of every answer."""
    sent, started = list[Answer](), time.perf_counter()
    for answer in steps:
        tell(name, answer)
        sent.append(answer)
    return Arm(name=name, sent=tuple(sent), seconds=time.perf_counter() - started)


def _ask(model: Model, question: Question, messages: Sequence[Message]) -> Answer:
    reply = model(messages)
    return Answer(
        number=question.number,
        question=question.text,
        messages=tuple(messages),
        text=reply.text,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        ttft_ms=reply.ttft_ms,
    )
