"""Diagnosis: where prompts first differ, what kind of thing differs, what that costs, and what to change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextpilot_core.checks import whole_number
from contextpilot_core.diagnose.changes import (
    Change,
    covered,
    document_changes,
    history_change,
    memory_change,
    metadata_places,
    question_change,
    question_place,
    varied_changes,
)
from contextpilot_core.diagnose.nearest import Earlier
from contextpilot_core.diagnose.pairs import Pair, cut_pair, document_spans
from contextpilot_core.diagnose.records import (
    Part,
    PromptLike,
    PromptRecord,
    Unit,
    as_record,
    common_length,
    common_parts,
    head_text,
    read_parts,
    same_kind,
)
from contextpilot_core.diagnose.report import Diagnosis, Finding, PairDiagnosis
from contextpilot_core.diagnose.tools import tool_change
from contextpilot_core.diagnose.varied import Varied, personal_units, varied_units
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.tokens import TokenCounter, checked, estimate_tokens

_Prompt = tuple[int, PromptRecord, tuple[Part, ...]]


@dataclass(frozen=True)
class _Measure:
    """How tokens are counted, and which of them a server reuses."""

    kv_block: int
    count: TokenCounter

    def head(self, parts: Sequence[Part], at: tuple[int, int]) -> int:
        return self.count(head_text(parts, at))

    def behind(self, units: Iterable[Unit], place: tuple[int, int]) -> int:
        return self.count("\n".join(unit.text for unit in units if (unit.part, unit.end) > place))


def reusable_tokens(common: int, total: int, kv_block: int) -> int:
    """Return how many tokens of a common head a server reuses: whole KV blocks, never the last of ``total`` tokens."""
    return max(0, min(common, total - 1)) // kv_block * kv_block


def diagnose(
    prompts: Sequence[PromptLike],
    *,
    kv_block: int = 16,
    count: TokenCounter = estimate_tokens,
    documents: Sequence[str] = (),
) -> Diagnosis:
    """Say where and why prompts stop sharing a prefix.

    Kinds are judged by rules on lines and sentences; a loss is a lower bound, as short shared lines are not counted.
    Twice as many prompts take twice as long, and so do prompts that are twice as long.

    Args:
        prompts: two or more, in the order in which they are sent: texts, message lists, request bodies with
            ``messages`` and ``tools``, or `PromptRecord`. Every prompt is compared with the earlier one with which it
            shares most (of equals, the latest). Tools are taken to stand before the messages.
        kv_block: tokens per KV block of the server; only whole blocks are reused.
        count: token counter; the default is an estimate.
        documents: the retrieved texts, where they are known, to tell whether a difference precedes them.

    Raises:
        ConfigError: ``kv_block`` is no whole number of at least 1.
        RequestError: fewer than two prompts, or texts mixed with message lists.
        RequestTypeError: a prompt of another type, or one that cannot be written as JSON.
    """
    whole_number("kv_block", kv_block, "give the server's block size")
    if isinstance(prompts, (str, bytes, Mapping, PromptRecord)) or not isinstance(prompts, Iterable):
        raise RequestTypeError(f"prompts is one {type(prompts).__name__}; give a list of two or more prompts")
    if isinstance(documents, str) or not all(isinstance(document, str) for document in documents):
        raise RequestTypeError("documents must be a list of texts; give [] where none are known")
    records = [as_record(prompt, position) for position, prompt in enumerate(prompts)]
    if len(records) < 2:
        raise RequestError(f"prompts holds {len(records)}; give at least two, to be compared with one another")
    same_kind(records)
    prompted: list[_Prompt] = [(number, record, read_parts(record, number)) for number, record in enumerate(records)]
    measure = _Measure(kv_block, checked(count))
    pairs, earlier = [], Earlier()
    for later in prompted:
        if later[0]:
            pairs.append(_diagnose_pair(prompted[earlier.nearest(later[2])], later, measure, documents))
        earlier.add(later[2], later[0])
    return Diagnosis(kv_block=kv_block, pairs=tuple(pairs))


def _diagnose_pair(earlier: _Prompt, later: _Prompt, measure: _Measure, documents: Sequence[str]) -> PairDiagnosis:
    (number_a, record_a, a), (number_b, record_b, b) = earlier, later
    at = common_parts(a, b)
    pair = cut_pair(a, b, at, documents)
    varied = varied_units(pair)
    both = [*pair.b.shared, *(unit.b for unit in varied), *_same_tools(record_a, record_b, pair)]
    total, common = measure.head(b, (len(b), 0)), measure.head(b, at)

    def reusable(tokens: int) -> int:
        return reusable_tokens(tokens, total, measure.kv_block)

    def gain(place: tuple[int, int]) -> int:
        return reusable(common + measure.behind(both, place)) - reusable(common)

    changes = _changes(pair, varied, (record_a, record_b), documents)
    if not any(change.kind == "appended" or gain((change.part, change.offset)) for change in changes):
        part, offset = min(at[0], len(b) - 1), at[1]
        lengths = (len(side.parts[at[0]].text) - offset if at[0] < len(side.parts) else 0 for side in (pair.a, pair.b))
        changes.append(Change("other" if gain(at) else "tail", part, offset, *lengths))
    before, behind = _documents(pair, documents)
    return PairDiagnosis(
        prompt=number_b,
        against=number_a,
        message=None if at[0] == 0 else at[0] - 1,
        offset=at[1],
        documents_before=before,
        documents_behind=behind,
        prompt_tokens=total,
        common_tokens=common,
        reused_tokens=reusable(common),
        reused_tokens_upper=reusable(max(common, measure.head(b, _with_answer(record_a, a, b)))),
        possible_tokens=reusable(common) + gain((0, -1)),
        findings=tuple(
            Finding(
                kind=change.kind,
                message=None if change.part == 0 else change.part - 1,
                offset=change.offset,
                length_before=change.before,
                length_after=change.after,
                lost_tokens=gain((change.part, change.offset)),
            )
            for change in sorted(changes, key=lambda change: (change.part, change.offset))
        ),
    )


def _changes(
    pair: Pair, varied: Sequence[Varied], records: tuple[PromptRecord, PromptRecord], documents: Sequence[str]
) -> list[Change]:
    """Return what differs and has a name."""
    a, b, at = pair.a.parts, pair.b.parts, pair.at
    if at[0] >= min(len(a), len(b)) or (
        at[0] == len(a) - 1 > 0 and at[1] == len(a[-1].text) and a[-1].role == b[at[0]].role
    ):
        added = sum(len(part.text) for part in b[at[0] :]) - at[1]
        return [Change("appended", at[0], at[1], 0, added)]
    changes = list(varied_changes(varied))
    kind = tool_change(records[0].tools, records[1].tools)
    if kind is not None:
        same = common_length(a[0].text, b[0].text)
        changes.append(Change(kind, 0, same, len(a[0].text) - same, len(b[0].text) - same))
    cut = list(history_change(pair))
    if cut:
        return changes + cut
    personal = personal_units(varied)
    questions = records[0].question, records[1].question
    places = question_place(pair.a, questions[0], at, personal), question_place(pair.b, questions[1], at, personal)
    known = {unit for both in varied for unit in (both.a, both.b)}
    known.update(covered(pair.a, places[0]), covered(pair.b, places[1]))
    reordered = metadata_places(pair)
    for place_a, place_b in reordered:
        known.update(covered(pair.a, place_a), covered(pair.b, place_b))
    if reordered:
        (*_, before), (part, offset, after) = reordered[0]
        changes.append(Change("metadata_order", part, offset, before, after))
    changes += question_change(pair, places)
    sent = [(part, start, end - start) for part, start, end in document_spans(b, documents)]
    memories = list(memory_change(pair, known.union(*(covered(pair.b, place) for place in sent))))
    known.update(
        unit for side in (pair.a, pair.b) for unit in side.own for memory in memories if unit.part == memory.part
    )
    return [*changes, *memories, *document_changes(pair, varied, known)]


def _same_tools(a: PromptRecord, b: PromptRecord, pair: Pair) -> list[Unit]:
    """Return the tools as text that both prompts hold, when only their order or form differs."""
    if tool_change(a.tools, b.tools) not in ("tool_order", "tool_keys"):
        return []
    start = common_length(pair.a.parts[0].text, pair.b.parts[0].text)
    return [Unit(0, start, pair.b.parts[0].text[start:])]


def _with_answer(record: PromptRecord, a: tuple[Part, ...], b: tuple[Part, ...]) -> tuple[int, int]:
    """Return up to where the later prompt repeats the earlier one and what the model answered.

    What was generated counts as the raw text when it is known, so that reasoning which the later prompt leaves out
    ends the common head; otherwise it is the assistant message that continues the earlier prompt.
    """
    if record.generated:
        text = isinstance(record.prompt, str)
        answered = (
            (*a[:-1], Part("", a[-1].text + record.generated)) if text else (*a, Part("assistant", record.generated))
        )
        return common_parts(answered, b)
    continues = common_parts(a, b) == (len(a), 0) and len(b) > len(a) and b[len(a)].role == "assistant"
    return (len(a) + 1, 0) if continues else common_parts(a, b)


def _documents(pair: Pair, documents: Sequence[str]) -> tuple[int, int]:
    """Count the documents of the later prompt that end before the first difference, and the others."""
    if not any(text.strip() for text in documents):
        before = sum(unit.long and (unit.part, unit.end) <= pair.at for unit in pair.b.units)
        return before, len(pair.b.shared)
    ends = [(part, end) for part, _, end in document_spans(pair.b.parts, documents)]
    return sum(end <= pair.at for end in ends), sum(end > pair.at for end in ends)
