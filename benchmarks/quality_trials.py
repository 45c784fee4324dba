"""The questions of the quality benchmark: from three datasets, with evidence among the 8 documents retrieved.

Long documents are cut in the prompts (not in the replay); a question counts only when evidence stands there uncut.
"""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks.data import corpus, data_folder
from contextpilot_integrations.gate.arms import dedup_prompts, order_prompts
from contextpilot_integrations.gate.cases import Case, EarlierTurn
from contextpilot_integrations.gate.trials import Trial, engine_orders

TOP_K = 8
CACHE_TOKENS = 40_000
DOCUMENT_CHARACTERS = 1_000
"""8 documents of this length stay below about 2,000 tokens."""
ANSWER_TOKENS = 48
"""Gold answers are scored up to here."""
GENERATED_TOKENS = 6
"""Length of what the model answers by itself, where the gold answer is that short."""
INSTRUCTIONS = "Answer the question from the documents, as briefly as you can."
SEED = 0
CONVERSATIONS = "mtrag_full.conversations.hybrid_rewrite"
TURNS = "mtrag, turns"
"""The group that tests de-duplication."""

Line = dict[str, Any]


def trials() -> list[Trial]:
    """Return all trials, the groups taking turns, so that every part of the list is balanced."""
    groups = [
        _single("multihoprag", "multihoprag.trace.bm25", lambda line: line["evidence_ids"]),
        _single("qasper_ev", "qasper_ev.trace.bm25", lambda line: [line["paper_id"]]),
        _turns_alone(),
        _turns_after_others(),
    ]
    draw = random.Random(SEED)
    for group in groups:
        draw.shuffle(group)
    return [trial for trial in chain.from_iterable(zip_longest(*groups)) if trial is not None]


def _single(group: str, trace: str, sources: Callable[[Line], Sequence[str]]) -> list[Trial]:
    """Questions of a trace, replayed one after the other; those that share ``sources`` are a cluster."""
    questions = {line["id"]: line for line in _lines(f"{group}.queries")}
    clusters = by_shared_source({name: sources(line) or () for name, line in questions.items()})
    lines = [{**questions[line["query_id"]], **line, "cluster": clusters[line["query_id"]]} for line in _lines(trace)]
    return _moved(group, trace, lines)


def _turns_alone() -> list[Trial]:
    """Turns of conversations as single questions (their standalone rewrites), replayed conversation by conversation.

    Interleaved, as the reuse tables replay them, they meet next to nothing in a cache of 40,000 tokens.
    """
    lines = [
        {**turn, "question": turn["retrieval_query"], "cluster": conversation["conversation_id"]}
        for conversation in _lines(CONVERSATIONS)
        for turn in conversation["turns"]
    ]
    return _moved("mtrag", CONVERSATIONS, lines)


def _turns_after_others() -> list[Trial]:
    """Turns after the latest earlier turn that shares a document with them: de-duplication."""
    found = []
    for conversation in _lines(CONVERSATIONS):
        turns = conversation["turns"]
        for number, turn in enumerate(turns):
            earlier = [each for each in turns[:number] if set(_ids(each)) & set(_ids(turn))]
            if earlier and _answerable(CONVERSATIONS, turn):
                case = _case(CONVERSATIONS, turn, earlier[-1:])
                prompts = dedup_prompts(case, instructions=INSTRUCTIONS)
                if prompts:
                    cluster = conversation["conversation_id"]
                    found.append(Trial(group=TURNS, answers=case.answers, prompts=prompts, cluster=cluster))
    return found


def _moved(group: str, trace: str, lines: Sequence[Line]) -> list[Trial]:
    """Return the questions whose evidence was retrieved and whose documents the engine moved."""
    lines = [line for line in lines if line["doc_ids"]]
    orders = engine_orders([_texts(trace, line) for line in lines], cache_tokens=CACHE_TOKENS)
    found = []
    for line, order in zip(lines, orders, strict=True):
        if _answerable(trace, line) and order != tuple(sorted(order)):
            case = _case(trace, line)
            prompts = order_prompts(case, order, instructions=INSTRUCTIONS, seed=SEED)
            found.append(Trial(group=group, answers=case.answers, prompts=prompts, cluster=line["cluster"]))
    return found


def by_shared_source(sources: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the cluster of every question: those that share a source, directly or through others, are one."""
    places = {
        source: place for place, source in enumerate(dict.fromkeys(chain.from_iterable(sources.values())), len(sources))
    }
    links = [(number, places[source]) for number, found in enumerate(sources.values()) for source in found]
    size = len(sources) + len(places)
    graph = coo_array((np.ones(len(links)), tuple(zip(*links, strict=True))), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    first = dict[int, str]()
    return {question: first.setdefault(int(labels[number]), question) for number, question in enumerate(sources)}


def _answerable(trace: str, line: Line) -> bool:
    """Whether there is a gold answer, and evidence was retrieved and stands in the prompt uncut."""
    found = set(_ids(line)).intersection(line["evidence_ids"] or ())
    whole = [identity for identity in found if len(str(corpus(trace)[identity].text)) <= DOCUMENT_CHARACTERS]
    return bool(whole and _answers(line["answer"]))


def _case(trace: str, line: Line, earlier: Sequence[Line] = ()) -> Case:
    def cut(line: Line) -> tuple[str, ...]:
        return tuple([text[:DOCUMENT_CHARACTERS] for text in _texts(trace, line)])

    return Case(
        query=line["question"],
        documents=cut(line),
        answers=_answers(line["answer"]),
        earlier=tuple(
            [EarlierTurn(query=turn["question"], documents=cut(turn), answer=turn["answer"]) for turn in earlier]
        ),
    )


def _ids(line: Line) -> list[str]:
    return line["doc_ids"][:TOP_K]


def _texts(trace: str, line: Line) -> list[str]:
    return list(dict.fromkeys(str(corpus(trace)[identity].text) for identity in _ids(line)))


def _answers(answer: object) -> tuple[str, ...]:
    """Return the gold answers; some sources nest lists."""
    if isinstance(answer, list):
        return tuple(chain.from_iterable(map(_answers, answer)))
    return (answer.strip(),) if isinstance(answer, str) and answer.strip() else ()


def _lines(name: str) -> list[Line]:
    with gzip.open(data_folder() / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
