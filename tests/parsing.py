"""Reads a rendered context back: what a careful reader of a prompt would find in it."""

import re
from dataclasses import dataclass

_HEAD = re.compile(r"\[Doc ([0-9]{1,18})\]\n(={3,})\n")


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block as it stands in a rendering: hints inside it are part of ``body``."""

    label: int
    body: str


@dataclass(frozen=True, slots=True)
class ParsedHint:
    """A line of a rendering that stands for a whole block."""

    line: str


def parse_context(text: str) -> tuple[ParsedBlock | ParsedHint, ...]:
    """Read a rendered context back, whatever the bodies hold. Raises `ValueError` where a block does not end."""
    items: list[ParsedBlock | ParsedHint] = []
    at = 0
    while at < len(text):
        head = _HEAD.match(text, at)
        if head is None:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            items.append(ParsedHint(text[at:end]))
        else:
            # The body holds no run this long, so the first one that starts a line is the closing fence.
            close = "\n" + head[2]
            found = text.find(close, head.end())
            end = found + len(close)
            if found < 0 or text[end : end + 1] not in ("", "\n"):
                raise ValueError(f"[Doc {head[1]}] at character {at} has no closing fence of {len(head[2])} '='")
            items.append(ParsedBlock(int(head[1]), text[head.end() : found]))
        at = end + 1
    return tuple(items)
