"""Where the real traces are, and synthetic contexts for scaling."""

import gzip
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from contextpilot_core.replay.traces import Document, TraceItem, load_corpus, load_trace

TRACES = (
    "graphrag_medical.trace.bm25",
    "hotpotqa.trace.bm25",
    "hotpotqa.trace.dense",
    "locomo.conversations.bm25",
    "locomo.conversations.dense",
    "locomo_mem.conversations.bm25",
    "mtrag.conversations.bm25_lastturn",
    "mtrag.conversations.bm25_questions",
    "mtrag.conversations.bm25_rewrite",
    "mtrag_full.conversations.bm25_lastturn",
    "mtrag_full.conversations.bm25_rewrite",
    "mtrag_full.conversations.hybrid_rewrite",
    "mtrag_reference.conversations.elser",
    "multihoprag.trace.bm25",
    "multihoprag.trace.dense",
    "multihoprag.trace.psirag_keyword",
    "multihoprag.trace.psirag_summary",
    "multihoprag_official_sample.trace.llm_embedder",
    "musique.trace.bm25",
    "musique.trace.dense",
    "narrativeqa.trace.bm25",
    "narrativeqa.trace.dense",
    "qasper.trace.bm25",
    "qasper.trace.dense",
    "qasper_ev.trace.bm25",
    "qasper_ev.trace.dense",
)
"""Every dev trace; a name is a file name without its ending."""

_SHARED_CORPUS = {"mtrag_full": "mtrag", "mtrag_reference": "mtrag"}


def data_folder() -> Path:
    """Return the folder of the real data; without it there is nothing to measure."""
    folder = os.environ.get("CONTEXTPILOT_DATA")
    if not folder:
        sys.exit("CONTEXTPILOT_DATA is not set: give the folder of the retrieval traces, see benchmarks/README.md")
    return Path(folder)


@cache
def trace(name: str) -> Sequence[TraceItem]:
    """Read one trace, with the evidence where the queries know it."""
    queries = data_folder() / f"{name.split('.')[0]}.queries.jsonl.gz"
    return load_trace(data_folder() / f"{name}.jsonl.gz", queries if queries.exists() else None)


@cache
def corpus(trace_name: str) -> Mapping[str, Document]:
    """Read the documents of a trace."""
    dataset = trace_name.split(".")[0]
    return load_corpus([data_folder() / f"{_SHARED_CORPUS.get(dataset, dataset)}.corpus.jsonl.gz"])


def contexts(trace_name: str, top_k: int = 15) -> list[list[str]]:
    """Return the distinct documents of every request, best first; requests without any are skipped, as in a replay."""
    return [list(dict.fromkeys(item.doc_ids[:top_k])) for item in trace(trace_name) if item.doc_ids]


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation: distinct documents best first, the question, the answer that follows in history."""

    documents: tuple[str, ...]
    question: str
    answer: str


def conversations(trace_name: str, top_k: int = 15) -> list[list[Turn]]:
    """Return the turns of every conversation."""
    with gzip.open(data_folder() / f"{trace_name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [[_turn(turn, top_k) for turn in json.loads(line)["turns"] if turn["doc_ids"]] for line in lines]


def _turn(turn: Mapping[str, Any], top_k: int) -> Turn:
    return Turn(tuple(dict.fromkeys(turn["doc_ids"][:top_k])), turn["question"], str(turn["answer"]))


@dataclass(frozen=True)
class Question:
    """A question of a trace, with its distinct documents, best first."""

    documents: tuple[str, ...]
    text: str


def questions(trace_name: str, top_k: int = 15) -> list[Question]:
    """Return the questions of a trace that has no conversations, in its order."""
    with gzip.open(data_folder() / f"{trace_name.split('.')[0]}.queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        wording = {query["id"]: query["question"] for query in map(json.loads, lines)}
    with gzip.open(data_folder() / f"{trace_name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [
            Question(tuple(dict.fromkeys(line["doc_ids"][:top_k])), wording[line["query_id"]])
            for line in map(json.loads, lines)
        ]


def zipf_contexts(contexts: int, blocks: int, topics: int, *, k: int = 15, seed: int = 0) -> list[list[int]]:
    """Draw contexts of ``k`` blocks: topics with Zipf popularity (0.9), 60 blocks each with Zipf popularity (0.8)."""
    rng = np.random.default_rng(seed)
    members = [rng.choice(blocks, 60, replace=False) for _ in range(topics)]
    by_topic = 1 / np.arange(1, topics + 1) ** 0.9
    by_topic /= by_topic.sum()
    by_block = 1 / np.arange(1, 61) ** 0.8
    by_block /= by_block.sum()
    return [
        rng.choice(members[rng.choice(topics, p=by_topic)], k, replace=False, p=by_block).tolist()
        for _ in range(contexts)
    ]


def synthetic_text(block: int) -> str:
    """Return a text of about 340 characters for a block of `zipf_contexts`."""
    return f"document {block} " + "x" * 327


def prose(block: int) -> str:
    """Return 340 characters for a block, without runs that other blocks share."""
    return " ".join(f"{block * 7919 + number * 104729:x}" for number in range(80))[:340]
