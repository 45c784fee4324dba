"""Two prompts of one question, taken apart for the report: what each shares with the prompts sent before it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contextpilot_core import Message
from contextpilot_integrations.demo.results import Answer, Arm

_BLOCK = re.compile(r"\[Doc (\d+)\]\n(=+)\n(.*?)\n\2(?=\n|\Z)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of a prompt: a document (``label`` is its mark) or what stands between documents.

    ``shared`` is the fraction of its characters, from its start, that lies in the shared prefix.
    """

    label: str
    text: str
    shared: float


def prompt_text(messages: Sequence[Message]) -> str:
    """Return the messages as one text, each below the name of its role."""
    return "\n\n".join(f"<{message['role']}>\n{message['content']}" for message in messages)


def shared_prefix(arm: Arm, answer: Answer) -> int:
    """Return how many leading characters of the prompt also began a prompt that the arm sent before it."""
    text = prompt_text(answer.messages)
    before = [prompt_text(other.messages) for other in arm.sent[: arm.sent.index(answer)]]
    return max((_common_prefix(text, other) for other in before), default=0)


def pieces(text: str, shared: int) -> list[Piece]:
    """Take a prompt apart into documents and the text around them; ``shared`` characters are its shared prefix."""
    found, end = list[Piece](), 0
    for block in _BLOCK.finditer(text):
        found += _piece("", text, end, block.start(), shared)
        found += _piece(f"[Doc {block[1]}]", text, block.start(), block.end(), shared, block[3])
        end = block.end()
    return found + _piece("", text, end, len(text), shared)


def most_telling(plain: Arm, ours: Arm) -> tuple[Answer, Answer]:
    """Return the two answers to the question whose prompt gained the most shared characters."""
    pairs = list(zip(plain.answers, ours.answers, strict=True))
    return max(pairs, key=lambda pair: (shared_prefix(ours, pair[1]) - shared_prefix(plain, pair[0]), -pair[0].number))


def _piece(label: str, text: str, start: int, end: int, shared: int, body: str | None = None) -> list[Piece]:
    shown = (text[start:end] if body is None else body).strip()
    if not shown:
        return []
    return [Piece(label=label, text=shown, shared=min(1.0, max(0.0, (shared - start) / (end - start))))]


def _common_prefix(left: str, right: str) -> int:
    length = min(len(left), len(right))
    return next((place for place in range(length) if left[place] != right[place]), length)
