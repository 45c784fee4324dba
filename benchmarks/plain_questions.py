"""Plain questions that a small model can answer: invented passages, each with four facts, and a question for one fact.

Passages come in groups of one kind, such as eight lighthouses, which tell the same things of different names. So the
other passages of a request look like the one that answers, and hold other answers to the same question.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("plain_kinds.txt")
SEED = 0
GROUP_SIZE = 8
"""Passages in a group."""
REQUESTS = 12
"""Questions about a group, one after the other."""
RETRIEVED = (4, 5, 6)
"""Passages per question, in turn."""

_FIRST = """Elna Marco Ivo Petra Nils Greta Tomas Rhea Odin Clara Hugo Selma Viktor Alma Felix Nora Oscar Lydia Anton
Ida Bruno Stella Emil Vera Rufus Olga Jonas Martha Silas Edith""".split()
_START = """Har Tor Wen Bel Dra Kes Lor Mun Nor Pel Quin Ros Sel Tam Ul Var Wil Yar Zan Bran Cor Dun Fal Gar Hol Kin
Lan Mor Ost Pren""".split()
_END = "wick dale mere stow field ford burn gate holm croft ley mont shaw ton worth beck".split()
_WORDS = {
    "material": "oak granite copper marble brick slate cedar iron clay sandstone limestone bamboo".split(),
    "colour": "red blue green yellow white purple orange grey pink brown black silver".split(),
    "month": "January February March April May June July August September October November December".split(),
    "animal": "goats ducks horses rabbits sheep llamas turkeys donkeys geese ponies bees alpacas".split(),
    "food": "honey pepper coffee walnuts cherries mushrooms lemons olives ginger apricots rice almonds".split(),
    "instrument": "violin trumpet cello flute harp piano clarinet drum oboe guitar organ trombone".split(),
    "metal": "zinc tin cobalt silver nickel lead gold platinum titanium quartz salt coal".split(),
    "tree": "maple birch willow pine elm chestnut walnut ash poplar larch cypress magnolia".split(),
}


@dataclass(frozen=True)
class Fact:
    """A pool of values, the sentence that tells one, the question for it, and how the answer begins."""

    pool: str
    sentence: str
    question: str
    beginning: str


@dataclass(frozen=True)
class Kind:
    """Passages of one kind: how they are called, and what each of them tells."""

    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and the passages retrieved for it, best first; ``gold`` is the position of the one that answers.

    ``beginning``: the start of the answer's sentence, which ``answer`` ends.
    """

    group: str
    query: str
    beginning: str
    answer: str
    passages: tuple[str, ...]
    gold: int


def kinds() -> list[Kind]:
    """Read `FILE`: a kind's name, then a line per fact, its four parts between bars; an empty line ends the kind."""
    found = []
    for part in FILE.read_text("utf-8").strip().split("\n\n"):
        name, *lines = part.splitlines()
        found.append(Kind(name, tuple(Fact(*line.split(" | ")) for line in lines)))
    return found


def questions(groups: int) -> list[Question]:
    """Return `REQUESTS` questions for each of the first ``groups`` groups, group by group.

    The rank of the answering passage goes through all places in turn.
    """
    found, known = list[Question](), kinds()
    for number in range(groups):
        draw = random.Random(f"{SEED}:{number}")
        kind = known[number % len(known)]
        told = _told(kind, draw)
        texts = [_text(kind, name, values, draw) for name, values in told]
        asked = [(place, fact) for place in range(GROUP_SIZE) for fact in kind.facts]
        for turn, (place, fact) in enumerate(draw.sample(asked, REQUESTS)):
            name, values = told[place]
            size = RETRIEVED[turn % len(RETRIEVED)]
            gold = (number + turn // len(RETRIEVED)) % size
            shown = draw.sample([text for text in texts if text != texts[place]], size - 1)
            shown.insert(gold, texts[place])
            question = Question(
                group=f"group {number}",
                query=fact.question.format(name=name),
                beginning=_capital(fact.beginning.format(name=name)),
                answer=values[fact.pool],
                passages=tuple(shown),
                gold=gold,
            )
            found.append(question)
    return found


_Told = tuple[str, Mapping[str, str]]
"""A name, and the value of every pool for it."""


def _told(kind: Kind, draw: random.Random) -> list[_Told]:
    """Return what the passages of a group tell; no two share a value, so that each question has one answer."""
    names = [kind.name.format(name) for name in _values("place", draw)]
    values = {fact.pool: _values(fact.pool, draw) for fact in kind.facts}
    return [(name, {pool: drawn[place] for pool, drawn in values.items()}) for place, name in enumerate(names)]


def _text(kind: Kind, name: str, values: Mapping[str, str], draw: random.Random) -> str:
    """Return a passage: the first fact names its subject, the others follow in any order."""
    first, *others = kind.facts
    draw.shuffle(others)
    return " ".join([_capital(fact.sentence.format(name=name, value=values[fact.pool])) for fact in (first, *others)])


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _values(pool: str, draw: random.Random) -> list[str]:
    """Draw different values of a pool, one for each passage of a group."""
    if pool == "number":
        return [str(value) for value in draw.sample(range(21, 980), GROUP_SIZE)]
    if pool == "year":
        return [str(value) for value in draw.sample(range(1702, 1990), GROUP_SIZE)]
    if pool == "place":
        return [start + draw.choice(_END) for start in draw.sample(_START, GROUP_SIZE)]
    if pool == "person":
        firsts, lasts = draw.sample(_FIRST, GROUP_SIZE), _values("place", draw)
        return [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]
    return draw.sample(_WORDS[pool], GROUP_SIZE)
