"""What a LlamaIndex memory holds of a chat with context: each question with its documents, as they were sent.

A user message of ours carries in ``additional_kwargs`` what it was planned from. So it can be planned again when the
messages before it change, by another process, too: a hint must never name what is gone. It is not sent to the model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from contextpilot_core import ContextBlock, Message, Plan
from contextpilot_core.prompt import HistoryDigest

RECORD = "contextpilot"


@dataclass(frozen=True)
class Record:
    """What a user message was planned from.

    ``base``: digest of the history that its hints name, "" without any. ``last``: highest label of its own, or 0.
    """

    question: str
    blocks: tuple[ContextBlock, ...]
    base: str
    last: int


PlanAgain = Callable[[Record, Sequence[ChatMessage]], ChatMessage]


def question_of(message: ChatMessage) -> str:
    """Return what the user asked, without the documents that went along; of other messages, their text."""
    record = _record(message)
    return (message.content or "") if record is None else record.question


def openai_form(messages: Iterable[ChatMessage]) -> list[Message]:
    """Return messages as the engine reads them. A message of one text is that text, others are lists of parts."""
    result: list[Message] = []
    for message in messages:
        parts = [
            {"type": "text", "text": block.text} if isinstance(block, TextBlock) else block.model_dump(mode="json")
            for block in message.blocks
        ]
        single = len(parts) == 1 and isinstance(message.blocks[0], TextBlock)
        result.append({"role": message.role.value, "content": parts[0]["text"] if single else parts})
    return result


def planned_message(plan: Plan, history: Sequence[ChatMessage]) -> ChatMessage:
    """Return the user message of a plan; ``history`` is what the memory held before it."""
    request = plan.request
    added = plan.messages[len(request.messages) :]
    blocks = [block if isinstance(block, ContextBlock) else ContextBlock(text=block) for block in request.blocks]
    record = {
        "question": request.query,
        "blocks": [{"id": block.id, "text": block.text} for block in blocks],
        "base": HistoryDigest(openai_form(history)).value if plan.names_history else "",
        "last": max(_own_labels(plan), default=0),
    }
    text = str(added[0]["content"]) if added else ""
    return ChatMessage(role=MessageRole.USER, content=text, additional_kwargs={RECORD: record})


def as_sent(message: ChatMessage) -> ChatMessage:
    """Return the message without our record."""
    if RECORD not in message.additional_kwargs:
        return message
    others = {key: value for key, value in message.additional_kwargs.items() if key != RECORD}
    return message.model_copy(update={"additional_kwargs": others})


def is_forgotten(plan: Plan, history: Sequence[ChatMessage]) -> bool:
    """Tell whether the engine no longer knows the history that the plan stands on: it gives its labels anew."""
    known = (_record(message) for message in history)
    last = max((record.last for record in known if record is not None), default=0)
    return min(_own_labels(plan), default=last + 1) <= last


def sound(messages: Sequence[ChatMessage], again: PlanAgain, *, forgotten: bool = False) -> list[ChatMessage]:
    """Return the messages; from the first one on whose hints name a history that is no more, ours planned again.

    ``forgotten``: all of ours, so that the engine knows them.
    """
    history: list[ChatMessage] = []
    digest = HistoryDigest()
    changed = forgotten
    for message in messages:
        record = _record(message)
        if record is not None and (changed or record.base not in ("", digest.value)):
            message = again(record, history)
            changed = True
        history.append(message)
        digest.add(openai_form([message])[0])
    return history


def without_oldest(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages after the first turn: what begins at the second user message."""
    questions = [at for at, message in enumerate(messages) if message.role == MessageRole.USER and at > 0]
    return list(messages[questions[0] :]) if questions else []


def _own_labels(plan: Plan) -> set[int]:
    """Return the labels of the blocks that the plan sends in full."""
    hinted = {hint.position for hint in plan.hints}
    return {label for at, label in zip(plan.order, plan.labels, strict=True) if at not in hinted and label is not None}


def _record(message: ChatMessage) -> Record | None:
    found = message.additional_kwargs.get(RECORD)
    if message.role != MessageRole.USER or not isinstance(found, Mapping):
        return None
    try:
        blocks = tuple(ContextBlock(text=block["text"], id=block["id"]) for block in found["blocks"])
        return Record(found["question"], blocks, found["base"], int(found["last"]))
    except (KeyError, TypeError, ValueError):  # not written by us
        return None
