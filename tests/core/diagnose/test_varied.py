"""Text that is the same but for a clock, a score, an id, a path or a label of rank; and text that is not."""

import pytest

from contextpilot_core.diagnose import diagnose
from contextpilot_core.diagnose.pairs import cut_pair
from contextpilot_core.diagnose.records import PromptRecord, common_parts, parts_of
from contextpilot_core.diagnose.varied import varied_units
from tests.core.diagnosed import DOCS, FIRST, HEAD, NAMES, REORDERED, RETRIEVED, context, only, stuffed, templated


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Current time: 10:59", "Current time: 11:02"),
        ("Today is Monday, 3 May 2026.", "Today is Tuesday, 4 May 2026."),
        ("now=2026-05-03T10:59:01Z", "now=2026-05-03T10:59:07Z"),
        ("Date: 05/03/2026 9:05 am", "Date: 05/04/2026 10:07 pm"),
        ("Timestamp 1767225600", "Timestamp 1767225933"),
        ("It is March 3rd, 2026", "It is March 4th, 2026"),
    ],
)
@pytest.mark.parametrize("kind", ["text", "messages"])
def test_s8_a_clock_at_the_head_costs_everything(one, two, kind):
    if kind == "text":
        prompts = [f"{one}\n{templated(FIRST, 'What is alpha?')}", f"{two}\n{templated(FIRST, 'What is beta?')}"]
    else:
        prompts = [stuffed(FIRST, "alpha?", f"{one}\n{HEAD}"), stuffed(FIRST, "beta?", f"{two}\n{HEAD}")]
    for documents in ((), tuple(DOCS.values())):
        pair = only(diagnose(prompts, documents=documents))
        assert pair.precedes_documents
        assert pair.documents_before == 0
        assert pair.reused_tokens == 0
        assert (pair.message, pair.offset) == (
            0,
            next(i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y),
        )
        assert pair.findings[0].kind == "clock"
        assert pair.findings[0].offset <= len(two)
        assert pair.lost_tokens > 250
    assert diagnose(prompts).kinds == ("clock",)


def test_a_clock_behind_the_documents_is_fine():
    prompts = [f"{templated(FIRST, 'What?')}\nTime: {time}" for time in ("10:59", "11:02")]
    assert diagnose(prompts).fine


def test_dates_of_different_documents_are_no_clock():
    def dated(names):
        return "\n\n".join(f"date: 2026-0{NAMES.index(name) + 1}-01\n{DOCS[name]}" for name in names)

    prompts = [f"{HEAD}\n\n{dated(names)}\n\nQuestion: {names[0]}?" for names in (FIRST, RETRIEVED)]
    assert "clock" not in diagnose(prompts).kinds
    assert diagnose(prompts).kinds[0] == "document_order"


def with_scores(names, first, form):
    return HEAD + "\n\n" + "\n\n".join(form(name, first + rank / 100) for rank, name in enumerate(names)) + "\n\nQ: x"


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda n, s: f"source: {n}\nretrieval_score: {s:.4f}\n\n{DOCS[n]}", id="metadata before the text"),
        pytest.param(lambda n, s: f"(relevance {s:.3f}) {DOCS[n]}", id="bare number"),
        pytest.param(
            lambda n, s: f"Document(id='{n}', metadata={{'score': {s}}}, page_content={DOCS[n]!r}),", id="repr"
        ),
        pytest.param(
            lambda n, s: f"Document(metadata={{'s': np.float64({s})}}, page_content={DOCS[n]!r}),", id="numpy"
        ),
    ],
)
def test_scores_in_the_text_are_named(form):
    pair = only(diagnose([with_scores(FIRST, 0.61, form), with_scores(REORDERED, 0.32, form)]))
    assert pair.findings[0].kind == "score"
    assert pair.lost_tokens > 150


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"one": "4f2a9c7711ab", "two": "99d2aa0071fe"}, "id"),
        ({"one": "123e4567-e89b-12d3-a456-426614174000", "two": "123e4567-e89b-12d3-a456-426614174999"}, "id"),
        ({"one": "/tmp/pytest-1/data/notes.md", "two": "/tmp/pytest-2/data/notes.md"}, "path"),
    ],
)
def test_ids_and_paths_that_change_per_request_are_named(ids, expected):
    prompts = [f"{HEAD}\n\nref {value}\n{context(FIRST)}\n\nQuestion: {q}?" for q, value in ids.items()]
    assert diagnose(prompts).kinds == (expected,)


def test_constant_ids_of_different_documents_are_not_named():
    def prompt(names):
        return HEAD + "\n\n" + "\n\n".join(f"doc_id: {NAMES.index(n)}\n{DOCS[n]}" for n in names) + "\n\nQuestion: z?"

    assert "id" not in [f.kind for f in diagnose([prompt(("alpha", "beta")), prompt(("gamma", "beta"))]).findings]


def labelled(names, labels):
    return HEAD + "\n\n" + "\n".join(f"[Doc {n}]\n===\n{DOCS[x]}\n===" for n, x in zip(labels, names, strict=True))


def test_rank_labels_are_named_and_labels_of_position_are_not():
    ranked = diagnose([labelled(FIRST, (1, 2, 3, 4)), labelled(REORDERED, (2, 1, 4, 3))])
    assert ranked.kinds[0] == "rank_label"
    assert diagnose([labelled(FIRST, (1, 2, 3, 4)), labelled(REORDERED, (1, 2, 3, 4))]).fine
    by_order = diagnose([labelled(FIRST, (1, 2, 3, 4)), labelled(RETRIEVED, (1, 2, 3, 4))])
    assert "rank_label" not in by_order.kinds
    assert "document_order" in by_order.kinds


def test_an_order_note_costs_before_the_documents_and_nothing_behind():
    def noted(note, names, first):
        pieces = (note, context(names)) if first else (context(names), note)
        return "\n\n".join([HEAD, *pieces, "Question: what?"])

    notes = ("Relevance: 1 2 3 4", "Relevance: 2 1 4 3")
    assert diagnose([noted(notes[0], FIRST, True), noted(notes[1], REORDERED, True)]).kinds[0] == "rank_label"
    assert diagnose([noted(notes[0], FIRST, False), noted(notes[1], REORDERED, False)]).fine


@pytest.mark.parametrize("label", ["[{}] ", "{}. ", "{}) ", "Source {}: "])
def test_labels_of_position_at_the_head_of_a_text_follow_the_order_only(label):
    def numbered_list(names):
        return f"{HEAD}\n\n" + "\n\n".join(label.format(n) + DOCS[name] for n, name in enumerate(names, 1)) + "\n\nQ: x"

    assert diagnose([numbered_list(FIRST), numbered_list(FIRST[::-1])]).kinds == ("document_order",)
    assert diagnose([numbered_list(FIRST), numbered_list(REORDERED)]).fine


def kinds_of(one: str, other: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what two texts say otherwise: (text of the one, of the other, kinds)."""
    a, b = (parts_of(PromptRecord(prompt=text)) for text in (one, other))
    return [(each.a.text, each.b.text, each.kinds) for each in varied_units(cut_pair(a, b, common_parts(a, b), ()))]


STAYS, ALSO = "This long line stands in both of them.", "So does this one, which is long as well."
ENDS = "\nOne of them ends with this line.", "\nThe other, however, ends with that."
TICKET = "The ticket of this request is id: "


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        pytest.param("id: x1\n" + STAYS, "id: x2\n" + STAYS, [("id: x1", "id: x2", ("id",))], id="equal text behind"),
        pytest.param("10:59", "11:02", [("10:59", "11:02", ("clock",))], id="the end behind both"),
        pytest.param(f"a\n{STAYS}\nid: x1{ENDS[0]}", f"b\n{STAYS}\nid: x2{ENDS[1]}", [], id="an id behind equal text"),
        pytest.param(f"a\n{STAYS}\n10:59{ENDS[0]}", f"b\n{STAYS}\n11:02{ENDS[1]}", [], id="a clock behind equal text"),
        pytest.param(
            f"a\n{STAYS}\nnow: 10:59{ENDS[0]}",
            f"b\n{STAYS}\nnow: 11:02{ENDS[1]}",
            [("now: 10:59", "now: 11:02", ("clock",))],
            id="the present behind equal text",
        ),
        pytest.param(
            f"a\n{STAYS}\nscore: 0.5{ENDS[0]}",
            f"b\n{STAYS}\nscore: 0.7{ENDS[1]}",
            [("score: 0.5", "score: 0.7", ("score",))],
            id="a score behind equal text",
        ),
        pytest.param(
            f"a\n{TICKET}x1{ENDS[0]}",
            f"b\n{TICKET}x2{ENDS[1]}",
            [(f"{TICKET}x1", f"{TICKET}x2", ("id",))],
            id="much equal text in it",
        ),
        pytest.param(
            f"a\n{TICKET}x1\n{TICKET}x3{ENDS[0]}", f"b\n{TICKET}x2\n{TICKET}x4{ENDS[1]}", [], id="records of one form"
        ),
        pytest.param(
            f"at 10:59 id: x1\n{STAYS}",
            f"at 11:02 id: x2\n{STAYS}",
            [("at 10:59 id: x1", "at 11:02 id: x2", ("clock", "id"))],
            id="two kinds in one",
        ),
        pytest.param(f"at 10:59\n{STAYS}", f"on 11:02\n{STAYS}", [], id="other words around it"),
        pytest.param(
            f"a\n[Doc 1]\n{STAYS}\n[Doc 2]\n{ALSO}",
            f"b\n[Doc 1]\n{ALSO}\n[Doc 2]\n{STAYS}",
            [("[Doc 2]", "[Doc 1]", ()), ("[Doc 1]", "[Doc 2]", ())],
            id="labels that count up",
        ),
        pytest.param(
            f"a\n[Doc 1]\n{STAYS}\n[Doc 2]\n{ALSO}",
            f"b\n[Doc 3]\n{STAYS}\n[Doc 1]\n{ALSO}",
            [("[Doc 1]", "[Doc 3]", ("rank_label",)), ("[Doc 2]", "[Doc 1]", ("rank_label",))],
            id="labels of rank",
        ),
    ],
)
def test_units_are_one_thing_by_their_neighbours_or_by_their_words(one: str, other: str, found: object):
    assert kinds_of(one, other) == found
