"""The arms: the same questions and the same retrieved documents, sent in different ways."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, Message, ReuseEngine
from contextpilot_integrations.demo.endpoint import Endpoint, Reply
from contextpilot_integrations.demo.results import Answer, Arm
from contextpilot_integrations.serving.client import ContextPilotClient

INSTRUCTIONS = "Answer in one short sentence from the documents."
BATCH_ARMS = ("plain", "contextpilot")
CHAT_ARMS = ("plain", "plain_append_only", "contextpilot")
PLAIN = EngineConfig(strategy="none", note="none", dedup=False)
"""The engine with all its work switched off: retrieval order and every text in full, in the very same layout."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with the documents that were retrieved for it, best first; ``number`` counts from 0."""

    number: int
    text: str
    blocks: tuple[ContextBlock, ...]


Steps = Iterator[Answer]
"""The answers of one arm as they come, in the order of sending."""


def batch_steps(arm: str, questions: Sequence[Question], endpoint: Endpoint) -> Steps:
    """Send independent questions: "plain" as they arrive, "contextpilot" planned and scheduled as one batch."""
    engine = ReuseEngine(PLAIN if arm == "plain" else None)
    instructions = endpoint.instructions(INSTRUCTIONS, arm)
    batch = engine.plan_batch(
        [ContextRequest(blocks=each.blocks, query=each.text, instructions=instructions) for each in questions]
    )
    for position in range(len(questions)) if arm == "plain" else batch.schedule:
        messages = batch.plans[position].messages
        yield _answer(questions[position], messages, endpoint.ask(messages))


def chat_steps(arm: str, questions: Sequence[Question], endpoint: Endpoint) -> Steps:
    """Send the turns of one conversation: every prompt stays in the history as it was sent, but for "plain".

    "contextpilot" moves documents and sends no text twice; "plain_append_only" keeps their order and repeats them.
    """
    instructions = endpoint.instructions(INSTRUCTIONS, arm)
    if arm == "plain":
        yield from _common_chat(questions, endpoint, instructions)
        return
    engine = ReuseEngine(PLAIN if arm == "plain_append_only" else None)
    chats = ContextPilotClient(endpoint.client, model=endpoint.model, engine=engine)
    for question in questions:
        with endpoint.answering():
            result = chats.chat(
                question.blocks, question.text, session_id="demo", instructions=instructions, **endpoint.options
            )
        reply = Reply(text=result.answer, usage=result.usage, ttft_ms=result.ttft_ms)
        yield _answer(question, result.plan.messages, reply)


def _common_chat(questions: Sequence[Question], endpoint: Endpoint, instructions: str) -> Steps:
    """Send documents with the current turn only, after a history of bare questions and answers."""
    engine, history = ReuseEngine(PLAIN), list[Message]()
    for question in questions:
        plan = engine.plan(question.blocks, query=question.text, instructions=instructions, messages=history)
        reply = endpoint.ask(plan.messages)
        yield _answer(question, plan.messages, reply)
        history += [{"role": "user", "content": question.text}, {"role": "assistant", "content": reply.text}]


def run_arm(name: str, steps: Steps, tell: Callable[[str, Answer], None]) -> Arm:
    """Run an arm to its end, telling of every answer."""
    sent, started = list[Answer](), time.perf_counter()
    for answer in steps:
        tell(name, answer)
        sent.append(answer)
    return Arm(name=name, sent=tuple(sent), seconds=time.perf_counter() - started)


def _answer(question: Question, messages: Sequence[Message], reply: Reply) -> Answer:
    return Answer(
        number=question.number,
        question=question.text,
        messages=tuple(messages),
        text=reply.text.strip(),
        prompt_tokens=reply.usage.prompt_tokens,
        cached_tokens=reply.usage.cached_tokens,
        ttft_ms=reply.ttft_ms,
    )
