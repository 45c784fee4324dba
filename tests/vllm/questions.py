"""Retrieved documents with questions: real ones where `CONTEXTPILOT_DATA` names them, made-up ones elsewhere."""

import json
import os
import random
from gzip import open as gzip_open
from pathlib import Path

from contextpilot_core.replay.traces import load_corpus, load_trace

DOCUMENTS, CHARACTERS = 7, 400
TRACE = "narrativeqa"


def retrieved(number):
    """The first questions with their best documents, cut: prompts of about 700 tokens, related to each other."""
    folder = os.environ.get("CONTEXTPILOT_DATA")
    return _real(Path(folder), number) if folder else _made_up(number)


def _real(folder, number):
    trace = load_trace(folder / f"{TRACE}.trace.dense.jsonl.gz")[:number]
    corpus = load_corpus([folder / f"{TRACE}.corpus.jsonl.gz"])
    with gzip_open(folder / f"{TRACE}.queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        asked = [json.loads(line)["question"] for line, _ in zip(lines, trace, strict=False)]
    found = [[corpus[identity].text[:CHARACTERS] for identity in item.doc_ids[:DOCUMENTS]] for item in trace]
    return list(zip(asked, found, strict=True))


def _made_up(number):
    """Ten questions in a row find the documents of one topic, and some of others."""
    draw = random.Random(0)
    pairs = []
    for question in range(number):
        found = [(question // 10, each) for each in draw.sample(range(8), DOCUMENTS - 2)]
        found += [(draw.randrange(20), 8 + each) for each in range(2)]
        pairs.append((f"What is number {question} about?", [made_up_document(*each) for each in found]))
    return pairs


def made_up_document(topic, number, characters=CHARACTERS):
    """A text like no other."""
    draw = random.Random(f"{topic} {number}")
    text = ""
    while len(text) < characters:
        text += "".join(draw.choice("bdfklmnprstv") + draw.choice("aeiou") for _ in range(draw.randint(1, 4))) + " "
    return text[:characters].strip()
