"""No text costs more than linear time: twice as much of it takes at most 2.5 times as long, whatever it says.

Python's regular expressions and loops hold the interpreter, so one text that takes long stops all tenants. Each text of
the table goes each way that a text can go through the core. What takes a few milliseconds is not measured any closer;
the rest is, in CPU time of this thread: sizes doubled three times in one run, medians of five.
"""

import base64
import gc
import random
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import Any

import pytest

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, ReuseEngine, citations, estimate_tokens
from contextpilot_core.diagnose import diagnose
from contextpilot_core.prompt import render_in_place

SIZES = (8_000, 16_000, 32_000, 64_000)
SHORT = 0.03  # seconds at the greatest size, below which nothing is asked
MOST = 2.5
ATTEMPTS = 4  # others use the machine, too; what is quadratic fails each of them


def again(unit: str) -> Callable[[int], str]:
    return lambda size: (unit * (size // len(unit) + 1))[:size]


def mixed(alphabet: str) -> Callable[[int], str]:
    return lambda size: "".join(random.Random(size).choices(alphabet, k=size))


def fibonacci(size: int) -> str:
    """Repeats of all lengths, none of which goes on for long."""
    one, two = "ab", "abcde" * 7
    while len(two) < size:
        one, two = two, two + one
    return two[:size]


def nested(size: int) -> str:
    return "[" * (size // 2) + "]" * (size // 2)


PERIOD = base64.b64encode(bytes(range(48))).decode()
UNITS = (
    *(" ", "\n", "\t", "\r", "\x0b", "\u2028", "\xa0", "\n ", "\n\t\r", "\r\n", "\0", "\u200d", "\ud800"),
    *("|", "| ", "|  |  |\n", "1 | x\n", "\n1   ", "=", "====\n", "== === ", "`", "~", "> ", "* ", "- "),
    *("[", "{", "[Doc ", "[Doc 1", "[Doc 1]\n", "[Doc 1]  > ", "[Doc 1, 2 and ", "{a: 1, ", "/a", "id"),
    *('"', '" ', '\\"', '"  :', "'", ".", '."', '.") ', "…", "。", "。 ", "搜索", "か\u3099", "\u3099", "\u0301"),
    *("a", "ab", "a: ", "a1", "1", "1 ", "rank ", "score ", "x\n\n", "Equal paragraph.\n\n"),
)
TEXTS: dict[str, Callable[[int], str]] = {
    **{repr(unit): again(unit) for unit in UNITS},
    "base64 of period 64": again(PERIOD),
    "base64 of period 400": again(base64.b64encode(random.Random(1).randbytes(300)).decode()),
    "base64 of period 4000": again(base64.b64encode(random.Random(2).randbytes(3_000)).decode()),
    "period 33": again("abcdefghijklmnopqrstuvwxyz0123456"),
    "period 31 with a space": again("abcdefghijklmnopqrstuvwxyz0123 "),
    "sentences": again("The same sentence over and over again, in the same place. "),
    "two letters": mixed("ab"),
    "letters and edges": mixed('a.\n" |=[]1{}:。'),
    "repeats of all lengths": fibonacci,
    "brackets in brackets": nested,
    "a text in brackets": lambda size: f'"{nested(size - 2)}"',
    "a word and spaces": lambda size: "rank" + " " * (size - 4),
    "a citation without an end": lambda size: "[Doc 1" + ", 1" * (size // 3),
}


def plan(blocks: Sequence[Any], **fields: Any) -> None:
    made = ReuseEngine(EngineConfig(kv_block=1)).plan(blocks, **fields)
    assert made.messages
    assert made.report


def labelled(text: str) -> str:
    """A text in which labels are looked for."""
    return f"[Doc 1]\n{text}\n[Doc 2]"


def in_place(texts: Sequence[str], around: Sequence[str]) -> None:
    assert render_in_place(texts, around, EngineConfig(), estimate_tokens)


def second_turn(text: str) -> None:
    engine = ReuseEngine(EngineConfig(kv_block=1))
    first = engine.plan([text, "other"], query="q").messages
    history = [*first, {"role": "assistant", "content": text}]
    again_ = engine.plan([f"X{text}", text[7:] + "Y", text, "other"], query="r", messages=history)
    assert again_.messages
    assert again_.sources is not None


def shown(text: str) -> None:
    made = ReuseEngine().plan([ContextBlock(text=text, title=text)], query=text, instructions=text)
    assert made.explain()
    assert made._repr_html_()


def prompts(text: str) -> None:
    text = text[: len(text) // 4]  # it is read many times
    sides = [[{"role": "system", "content": side + text}, {"role": "user", "content": text + side}] for side in "AB"]
    assert diagnose(sides, documents=[text[:99]]).pairs
    assert diagnose([side + text.replace("\n", f"{side}\n", 999) for side in "AB"]).pairs


WAYS: dict[str, Callable[[str], object]] = {
    "documents": lambda text: plan([text, f"X{text}", text[len(text) // 3 :] + "Y" + text[: len(text) // 3]]),
    "question": lambda text: plan(["d"], query=labelled(text)),
    "tool result": lambda text: plan([text[1:], text], messages=[{"role": "tool", "content": labelled(text)}]),
    "answer": lambda text: plan(["d"], messages=[{"role": "assistant", "content": labelled(text)}]),
    "parts": lambda text: plan(
        ["d"], messages=[{"role": "user", "content": [{"type": "text", "text": labelled(text)}]}]
    ),
    "second turn": second_turn,
    "for people": shown,
    "in place": lambda text: render_in_place(
        [text, "d", text], [text, "", "\n", text], EngineConfig(), estimate_tokens
    ),
    "citations": lambda text: citations(text, {1: "one"}),
    "diagnosis": prompts,
}


def seconds(call: Callable[[Any], object], value: Any) -> float:
    started = thread_time()
    call(value)
    return thread_time() - started


def ratios(call: Callable[[Any], object], make: Callable[[int], Any], sizes: Sequence[int]) -> list[float]:
    """How much longer each size takes than the one before it; none where a first look leaves no doubt."""
    values = [make(size) for size in sizes]
    took = seconds(call, values[-1])
    if took < SHORT or took < 2**3 * seconds(call, values[0]):
        return []
    gc.collect()
    gc.disable()
    try:
        taken = [median(seconds(call, value) for _ in range(5)) for value in values]
    finally:
        gc.enable()
    return [late / early for early, late in zip(taken, taken[1:], strict=False) if early > SHORT / 8]


def check(call: Callable[[Any], object], make: Callable[[int], Any], sizes: Sequence[int] = SIZES) -> None:
    found = []
    for _ in range(ATTEMPTS):
        found.append(ratios(call, make, sizes))
        if all(ratio <= MOST for ratio in found[-1]):
            return
    raise AssertionError(f"twice as much takes longer than {MOST} times: {found}")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_twice_as_much_text_takes_twice_as_long(text: Callable[[int], str], way: Callable[[str], object]) -> None:
    check(way, lambda size: f"{text(size)}x")


def sentences(size: int) -> list[str]:
    pick = random.Random(size)
    return [" ".join(map(str, pick.choices(range(10**6), k=13))) + ". " for _ in range(size // 92)]


def shuffled(size: int) -> list[str]:
    """The sentences of a document in another order: as many spans as there can be."""
    found = sentences(size)
    return ["".join(found), "so ".join(random.Random(1).sample(found, len(found)))]


def flawed(step: int) -> Callable[[int], list[str]]:
    """Texts that are equal but for one character in ``step``."""

    def make(size: int) -> list[str]:
        text = "".join(random.Random(1).choices("abcdefgh", k=size))
        return [text, *("".join(c if (n + at) % step else "Z" for n, c in enumerate(text)) for at in (0, step // 2))]

    return make


DOCUMENTS: dict[str, Callable[[int], list[str]]] = {
    "shuffled": shuffled,
    "flawed at 66": flawed(66),
    "flawed at 100": flawed(100),
    "flawed at 1000": flawed(1_000),
    "many": lambda size: [f"document {number}" for number in range(size // 64)],
    "many alike": lambda size: [f"{'the same words ' * 9}{number}" for number in range(size // 160)],
    "equal": lambda size: ["the same document"] * (size // 32),
    "rotated": lambda size: [(PERIOD[at:] + PERIOD[:at]) * (size // 640) for at in range(10)],
}


def other_messages(blocks: Sequence[str]) -> None:
    """Each document alone in a message of somebody else, and nearly so in the request."""
    plan([f"{text}\n\nmore" for text in blocks], messages=[{"role": "user", "content": text} for text in blocks])


def sources(blocks: Sequence[str]) -> None:
    given = [ContextBlock(text=text[:20], id=[number], metadata={"at": number}) for number, text in enumerate(blocks)]
    assert ReuseEngine().plan(given, query="q").sources
    assert ReuseEngine(EngineConfig(dedup=False)).plan(given, query="q").sources


def windows(blocks: Sequence[str]) -> None:
    pick = random.Random(1)
    requests = [ContextRequest(blocks=pick.choices(blocks[:99], k=3)) for _ in blocks]
    ReuseEngine().plan_window(requests)


WAYS_OF_MANY: dict[str, Callable[[Sequence[str]], object]] = {
    "documents": plan,
    "other messages": other_messages,
    "in place": lambda texts: in_place(texts, [""] * (len(texts) + 1)),
    "sources": sources,
    "windows": windows,
    "batches": lambda texts: ReuseEngine().plan_batch([ContextRequest(blocks=[text, "same"]) for text in texts]),
    "diagnosis": lambda texts: diagnose([*texts, "the last"]),
}


@pytest.mark.parametrize("way", WAYS_OF_MANY.values(), ids=WAYS_OF_MANY)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_twice_as_many_documents_take_twice_as_long(documents: Callable[[int], list[str]], way: Any) -> None:
    check(way, documents)


def test_what_is_quadratic_is_seen() -> None:
    def quadratic(size: int) -> None:
        for _ in range(size // 20):
            ("a" * size).count("b")

    with pytest.raises(AssertionError, match="twice as much takes longer"):
        check(quadratic, int)
