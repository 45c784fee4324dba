"""Conversations of the kernel that every chat shares: turns on top of each other, without any framework."""

import re
from dataclasses import replace

from contextpilot_core import ReuseEngine
from contextpilot_integrations.serving.chat import Asked, Entry, Setting, Turn


def document(name, length=40):
    """A text of which no run stands in another one's."""
    return " ".join(f"{name}-{number}" for number in range(length))


A, B, C, D, E = (document(name) for name in "abcde")


def words(text):
    return len(text.split())


def setting_of(engine=None, **options):
    return Setting(engine=engine or ReuseEngine(), count=words, **options)


def turn_of(setting, history, question, *documents, parts=(), **options):
    return Turn(setting, history, Asked(question, documents, parts), **options)


def talk(setting, *asked, history=()):
    """Ask one question after the other, each answered "ok": the history."""
    history = list(history)
    for number, documents in enumerate(asked):
        turn = turn_of(setting, history, f"question {number}", *documents)
        turn.sent()
        history = [*turn.head, *turn.history, turn.entry, Entry({"role": "assistant", "content": "ok"})]
    return history


def texts(entries):
    """The user messages."""
    return [entry.message["content"] for entry in entries if entry.message is not None and entry.is_question]


def labels(entries):
    """The labels of the blocks that the user messages show."""
    return [int(label) for text in texts(entries) for label in re.findall(r"^\[Doc (\d+)\]$", text, re.M)]


def changed(entry, **fields):
    """An entry of ours as if it had been planned from something else."""
    return replace(entry, asked=replace(entry.asked, **fields))
