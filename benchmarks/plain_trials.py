"""The plain questions in every arm: those of the gate in the product's own layout, and other wordings of the note.

Every prompt ends with the beginning of the answer's sentence, which the model completes: a small model answers in
sentences, whatever it is told, and their beginnings would decide the likelihood of an answer.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest

from benchmarks.plain_questions import Question, questions
from contextpilot_core import ReuseEngine
from contextpilot_integrations.gate.arms import (
    CLOSED_BOOK,
    COMPACT,
    FULL,
    NOTE_ALONE,
    ORIGINAL,
    PLAIN,
    RANDOM,
    REORDERED,
    TOP_3,
    Messages,
    dedup_prompts,
    order_prompts,
)
from contextpilot_integrations.gate.cases import Case, EarlierTurn
from contextpilot_integrations.gate.trials import DEDUP, ORDER, Trial, engine_orders

GROUPS = 200
CACHE_TOKENS = 40_000
INSTRUCTIONS = "Answer the question from the documents."
SEED = 0

ALONE = "answering passage alone"
"""Chooses the questions, and is compared with nothing."""
WORDS, BEST = "reordered + first three in words", "reordered + best one in words"
OTHER = "reordered + compact note of a random order"
LINE = "line before, reordered"
WORDED_ARMS = (ORIGINAL, NOTE_ALONE, REORDERED, COMPACT, FULL, TOP_3, WORDS, BEST, OTHER, LINE, RANDOM, CLOSED_BOOK)
"""As `ORDER_ARMS` of the gate, with more notes. Arms with equal documents follow one another: they share a prefix."""
LINE_TEXT = "The documents stand in no particular order."
"""The same before all documents, so that prompts still share their beginnings."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A trial, and the places (from 0) of the answering passage: by rank, in the engine's order; of how many.

    For a second turn: in that turn, and in the one before.
    """

    trial: Trial
    rank: int
    place: int
    size: int

    @property
    def cell(self) -> tuple[int, int]:
        """Rank and place, each in thirds of the prompt."""
        return 3 * self.rank // self.size, 3 * self.place // self.size


def trials(groups: int = GROUPS) -> list[Asked]:
    """Return two single questions and a second turn in turns; among each kind all cells take turns (`Asked.cell`)."""
    found = questions(groups)
    single, second_turns = _balanced(_single(found)), _balanced(_second_turns(found))
    return [
        each for each in chain.from_iterable(zip_longest(single[::2], second_turns, single[1::2])) if each is not None
    ]


def _single(found: Sequence[Question]) -> list[Asked]:
    """Return the questions whose documents the engine moves, replayed one after the other."""
    asked = []
    orders = engine_orders([question.passages for question in found], cache_tokens=CACHE_TOKENS)
    for question, order in zip(found, orders, strict=True):
        if order != tuple(sorted(order)):
            case = Case(query=question.query, documents=question.passages, answers=(question.answer,))
            prompts = worded_prompts(order_prompts(case, order, instructions=INSTRUCTIONS, seed=SEED), order, case.key)
            place, size = order.index(question.gold), len(order)
            asked.append(Asked(trial=_trial(ORDER, question, prompts), rank=question.gold, place=place, size=size))
    return asked


def worded_prompts(prompts: Mapping[str, Messages], order: Sequence[int], seed: str) -> dict[str, Messages]:
    """Return the prompts of `WORDED_ARMS` but for the last, which stays what it was."""
    (*head, user) = prompts[REORDERED]
    context, query = user["content"].rsplit("\n\n", 1)
    labels = [order.index(rank) + 1 for rank in range(len(order))]
    shuffled = random.Random(f"{SEED}:{seed}").sample(labels, len(labels))

    def noted(*parts: str) -> Messages:
        return (*head, {**user, "content": "\n\n".join(parts)})

    more = {
        WORDS: noted(context, in_words(labels[:3]), query),
        BEST: noted(context, in_words(labels[:1]), query),
        OTHER: noted(context, "Relevance: " + " ".join(map(str, shuffled[:5])), query),
        LINE: noted(LINE_TEXT, context, query),
    }
    return {arm: {**prompts, **more}[arm] for arm in WORDED_ARMS}


def in_words(labels: Sequence[int]) -> str:
    """Name labels, best first: "The second document is the most relevant, then the fourth."."""
    best, *others = [f"the {_ORDINALS[label - 1]}" for label in labels]
    return ", then ".join([f"T{best[1:]} document is the most relevant", *others]) + "."


def _second_turns(found: Sequence[Question]) -> list[Asked]:
    """Return turns of 3 passages whose answer stands in one that the turn before showed, among 3, for its question."""
    asked = []
    for before, question in pairwise(found):
        answers = {before.passages[before.gold], question.passages[question.gold]}
        if before.group == question.group and len(answers) == 2:
            number = len(asked)
            place, rank = number % 3, number // 3 % 3
            now = [text for text in question.passages if text not in answers][:2]
            rest = [text for text in before.passages if text not in answers and text not in now]
            if len(now) == 2 and rest:
                then = [before.passages[before.gold], rest[0]]
                case = Case(
                    query=question.query,
                    documents=_inserted(now, rank, question),
                    answers=(question.answer,),
                    earlier=(
                        EarlierTurn(
                            query=before.query,
                            documents=_inserted(then, place, question),
                            answer=f"{before.beginning} {before.answer}.",
                        ),
                    ),
                )
                prompts = dedup_prompts(case, instructions=INSTRUCTIONS)
                asked.append(Asked(trial=_trial(DEDUP, question, prompts), rank=rank, place=place, size=3))
    return asked


def _inserted(others: Sequence[str], place: int, question: Question) -> tuple[str, ...]:
    return (*others[:place], question.passages[question.gold], *others[place:])


def _trial(group: str, question: Question, prompts: Mapping[str, Messages]) -> Trial:
    """Return the trial, with the arm that chooses before the others."""
    alone = ReuseEngine(PLAIN).plan([question.passages[question.gold]], query=question.query, instructions=INSTRUCTIONS)
    begun = {"role": "assistant", "content": question.beginning}
    return Trial(
        group=group,
        answers=(question.answer,),
        prompts={arm: (*messages, begun) for arm, messages in {ALONE: alone.messages, **prompts}.items()},
        cluster=question.group,
    )


def _balanced(asked: Sequence[Asked]) -> list[Asked]:
    """Return them in a seeded order in which the cells take turns, as long as each of them lasts."""
    cells = dict[tuple[int, int], list[Asked]]()
    for each in random.Random(SEED).sample(asked, len(asked)):
        cells.setdefault(each.cell, []).append(each)
    columns = [cells[cell] for cell in sorted(cells)]
    return [each for each in chain.from_iterable(zip_longest(*columns)) if each is not None]
