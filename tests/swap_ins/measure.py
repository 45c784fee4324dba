"""One pipeline with and without us: its code, the questions it is asked, and what its recorded prompts show."""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

QUESTIONS: dict[str, tuple[str, ...]] = {
    "How does qA work?": ("D1", "D2", "D3", "D4"),
    "What about qB?": ("D2", "D1", "D5", "D3"),
    "And qC, then?": ("D3", "D6", "D1", "D2"),
    "Once more: qD?": ("D4", "D2", "D1", "D5"),
}
"""What is asked, one after the other, and what the search finds for it, best first."""

KEYS = {question: re.findall(r"q[A-D]", question)[0] for question in QUESTIONS}
FOUND = {KEYS[question]: names for question, names in QUESTIONS.items()}
_LABELLED = r"\[Doc (\d+)\]\n(=+)\n(.*?)\n\2(?=\n|$)"
_HINTED = r"^See \[Doc (\d+)\] above\.$"


def text_of(name: str) -> str:
    """About 300 characters that share no sentence with another document's."""
    return " ".join(f"Fact {number} about {name} is now kept in drawer {name}{number * 7}." for number in range(7))


def source_of(name: str) -> str:
    return f"{name.lower()}-manual.pdf"


def page_of(name: str) -> int:
    return 700 + int(name[1:])


@dataclass(frozen=True)
class SwapIn:
    """A pipeline as code, and the lines that a user changes in it: old -> new ("" is a new line at the end of the top).

    The code defines ``ask(question)``, which returns what the pipeline gives back; for chats with labels,
    ``source(label)``, which returns the id of what a label stands for.
    """

    name: str
    code: str
    changes: Mapping[str, str]
    note: bool = False

    def text(self, *, swapped: bool) -> str:
        code = dedent(self.code).strip() + "\n"
        for old, new in self.changes.items() if swapped else ():
            assert code.count(old) == 1, f"{self.name}: {old!r} stands {code.count(old)} times in its code"
            code = code.replace(old, new)
        return code

    @property
    def lines_changed(self) -> int:
        """Lines that are new or different, imports not counted."""
        before, after = (self.text(swapped=swapped).splitlines() for swapped in (False, True))
        return sum(line.startswith("+ ") for line in difflib.ndiff(before, after))


@dataclass
class Turn:
    """One question: the prompts that the model got for it, and the documents that came back (None: none do)."""

    question: str
    prompts: list[str] = field(default_factory=list)
    returned: list[tuple[str, str, Mapping[str, Any]]] | None = None
    sources: dict[int, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return QUESTIONS[self.question]


@dataclass(frozen=True)
class Row:
    """What one pipeline does, without (plain) and with us."""

    name: str
    lines: int
    documents: bool
    metadata: bool
    citations: tuple[str, str]
    note: str
    shared: tuple[float, float]


Run = Callable[[SwapIn, bool], list[Turn]]


def row(swap: SwapIn, run: Run) -> Row:
    plain, ours = run(swap, False), run(swap, True)
    return Row(
        name=swap.name,
        lines=swap.lines_changed,
        documents=all(map(documents_there, ours)),
        metadata=all(metadata_as_before(before, after) for before, after in zip(plain, ours, strict=True)),
        citations=(citations(plain), citations(ours)),
        note=note(ours),
        shared=(shared(plain), shared(ours)),
    )


def documents_there(turn: Turn) -> bool:
    """Every sentence of every document stands in a prompt of its question; what a hint names stands in its prompt."""
    sentences = [sentence for name in turn.names for sentence in text_of(name).split(". ")]
    return all(any(sentence in prompt for prompt in turn.prompts) for sentence in sentences) and all(
        hint in {label for label, *_ in re.findall(_LABELLED, prompt, re.DOTALL)}
        for prompt in turn.prompts
        for hint in re.findall(_HINTED, prompt, re.MULTILINE)
    )


def metadata_as_before(plain: Turn, ours: Turn) -> bool:
    """What plain prompts tell of a document ours tell too; what comes back has its text and metadata as they were."""
    told = all(
        any(value in prompt for prompt in ours.prompts)
        for name in plain.names
        for value in (source_of(name), str(page_of(name)))
        if any(value in prompt for prompt in plain.prompts)
    )
    return told and (plain.returned is None or same(plain.returned, ours.returned))


def same(plain: list[Any], ours: list[Any] | None) -> bool:
    def of(found: list[Any]) -> list[Any]:  # CitationQueryEngine counts its sources itself, in the text
        return sorted(
            (re.sub(r"^Source \d+:\n", "", text), [*data.items()][: len(data) - sum(map(_ours, data))])
            for _, text, data in found
        )

    return ours is not None and of(plain) == of(ours)


def _ours(key: str) -> bool:
    return key.startswith("contextpilot_")


def citations(turns: Sequence[Turn]) -> str:
    """How a citation finds its document: by our label, by place in what comes back (source n is the nth), or not."""
    if all(turn.sources is not None for turn in turns):
        return "label" if all(map(_labels_resolve, turns)) else "WRONG"
    if any(turn.returned is None for turn in turns):
        return "none"
    return "place" if all(map(_places_agree, turns)) else "WRONG"


def _labels_resolve(turn: Turn) -> bool:
    labelled = {
        int(label): name
        for prompt in turn.prompts
        for label, _, body in re.findall(_LABELLED, prompt, re.DOTALL)
        for name in {name for names in QUESTIONS.values() for name in names}
        if text_of(name) in body
    }
    sources = turn.sources or {}
    return bool(labelled) and all(sources.get(label) == f"id-{name}" for label, name in labelled.items())


def _places_agree(turn: Turn) -> bool:
    places = [next(p.index(text) for p in turn.prompts if text in p) for _, text, _ in turn.returned or []]
    whole = [p for p in turn.prompts if all(text in p for _, text, _ in turn.returned or [])]
    return not whole or places == sorted(places)


def note(turns: Sequence[Turn]) -> str:
    """Whether a prompt tells the order of relevance, and whether it is true."""
    told = [(turn, prompt) for turn in turns for prompt in turn.prompts if "elevance: " in prompt]
    if not told:
        return "no note"
    return "right" if all(_true(turn, prompt) for turn, prompt in told) else "WRONG"


def _true(turn: Turn, prompt: str) -> bool:
    last = prompt[prompt.rindex("elevance: ") + len("elevance: ") :].split("\n")[0]
    labels = {
        name: int(label)
        for label, _, body in re.findall(_LABELLED, prompt, re.DOTALL)
        for name in turn.names
        if text_of(name) in body
    }
    return [int(number) for number in re.findall(r"\d+", last)] == [labels[name] for name in turn.names]


def shared(turns: Sequence[Turn]) -> float:
    """Part of the characters of all prompts but the first that stand at the start of an earlier prompt, too."""
    prompts = [prompt for turn in turns for prompt in turn.prompts]
    found = [
        max(len(os.path.commonprefix([prompt, earlier])) for earlier in prompts[:number])
        for number, prompt in enumerate(prompts)
        if number
    ]
    return sum(found) / sum(map(len, prompts[1:]))


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| pipeline | lines changed | documents all there | metadata as before | citation resolves by | note "
        "| prefix shared without us | with us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in rows:
        yes = ["yes" if value else "NO" for value in (each.documents, each.metadata)]
        cited = each.citations[1] if len(set(each.citations)) == 1 else " → ".join(each.citations)
        share = [f"{100 * value:.0f} %" for value in each.shared]
        cells = [each.name, str(each.lines), *yes, cited, each.note, *share]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
