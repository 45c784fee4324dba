"""What kind of thing differs: memories, questions, metadata, documents, a history that was cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.diagnose import PromptRecord, diagnose
from contextpilot_core.diagnose.changes import (
    Change,
    common_count,
    covered,
    document_changes,
    history_change,
    memory_change,
    metadata_places,
    question_change,
    question_place,
    varied_changes,
)
from contextpilot_core.diagnose.pairs import Pair, cut_pair
from contextpilot_core.diagnose.records import PromptLike, Unit, as_record, common_parts, parts_of
from contextpilot_core.diagnose.varied import Varied
from tests.core.diagnosed import DOCS, FIRST, HEAD, NAMES, REORDERED, RETRIEVED, context, only, stuffed, templated, tool


def test_tools_rendered_in_a_text_are_named_too():
    lines = [json.dumps(tool(name, query={"type": "string"})) for name in ("search", "fetch")]
    prompts = [
        "\n".join(["# Tools", *order, HEAD, context(FIRST), "Question: what?"]) for order in (lines, lines[::-1])
    ]
    assert diagnose(prompts).kinds == ("tool_order",)


@pytest.mark.parametrize("heading", ["Relevant memories:\n- ", "User profile: ", ""])
def test_s10_memories_in_the_system_message_are_warned_of(heading):
    def remembering(memory):
        return [
            {"role": "system", "content": f"{HEAD}\n\n{heading}{memory}"},
            {"role": "user", "content": f"{context(FIRST)}\n\nWhat is it?"},
        ]

    pair = only(diagnose([remembering("Likes tea and lives in Bern."), remembering("Has a dog whose name is Rex.")]))
    assert pair.findings[0].kind == "memory_in_system"
    assert pair.findings[0].message == 0
    assert pair.findings[0].lost_tokens > 200


def test_s10_memories_behind_the_documents_leave_the_documents_in_the_common_head():
    def remembering(memory):
        user = f"{context(FIRST)}\n\nWhat you remember: {memory}\n\nWhat is it?"
        return [{"role": "system", "content": HEAD}, {"role": "user", "content": user}]

    diagnosis = diagnose(
        [remembering("Likes tea."), remembering("Has a dog.")], documents=[DOCS[name] for name in FIRST]
    )
    assert diagnosis.fine
    assert only(diagnosis).documents_before == 4
    assert not only(diagnosis).precedes_documents


def test_documents_in_the_system_message_are_no_memory():
    kinds = diagnose([stuffed(FIRST, "What is alpha?"), stuffed(RETRIEVED, "What is beta?")]).kinds
    assert kinds == ("document_order", "document_set")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("label", ["Question: ", "User question: ", "### Query\n=======\nQuery: "])
def test_a_question_before_the_context_is_named(known, label):
    def asking(question, names):
        text = f"{HEAD}\n{label}{question}\nContext:\n{context(names)}\nAnswer:"
        return PromptRecord(prompt=text, question=question if known else "")

    diagnosis = diagnose([asking("What is alpha?", FIRST), asking("And what is beta?", REORDERED)])
    assert diagnosis.findings[0].kind == "question_before_context"
    assert diagnosis.findings[0].lost_tokens > 150


def test_a_question_in_the_user_message_before_a_tool_result_is_named():
    def agent(question):
        return [
            {"role": "system", "content": HEAD},
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "search"}}]},
            {"role": "tool", "tool_call_id": "1", "content": context(FIRST)},
        ]

    assert diagnose([agent("What is alpha?"), agent("And what is beta?")]).kinds == ("question_before_context",)


@pytest.mark.parametrize(
    "form",
    [
        lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs) + "\n\n",
        lambda pairs: repr(dict(pairs)) + "\n",
        lambda pairs: json.dumps(dict(pairs)) + " ",
    ],
)
def test_metadata_key_order_is_named(form):
    pairs = [("author", "Anna Bell"), ("source", "alpha.md")]
    prompts = [f"{HEAD}\n\n{form(order)}{context(FIRST)}\n\nQuestion: x" for order in (pairs, pairs[::-1])]
    assert diagnose(prompts).kinds == ("metadata_order",)


def test_document_order_alone_and_document_set_alone():
    assert diagnose([templated(FIRST, "a?"), templated(FIRST[::-1], "b?")]).kinds == ("document_order",)
    among = ("alpha", "epsilon", "gamma", "delta")
    assert diagnose([templated(FIRST, "a?"), templated(among, "b?")]).kinds == ("document_set",)
    assert diagnose([templated(FIRST, "a?"), templated(FIRST[1:], "b?")]).kinds == ("document_set",)
    assert diagnose([templated(FIRST[1:], "a?"), templated(FIRST, "b?")]).kinds == ("document_set",)


def test_history_behind_documents_is_a_loss():
    turns = [{"role": "user", "content": "Tell me more."}, {"role": "assistant", "content": f"Gladly: {'so ' * 90}"}]
    prompts = [[*stuffed((name,), "")[:1], *turns, {"role": "user", "content": "And?"}] for name in ("alpha", "beta")]
    diagnosis = diagnose(prompts, documents=list(DOCS.values()))
    assert diagnosis.kinds == ("document_set",)
    assert diagnosis.lost_tokens > 60


@pytest.mark.parametrize("summary", [[], [{"role": "system", "content": "Before: they spoke of alpha at length."}]])
def test_a_history_that_was_cut_is_named(summary):
    turns = [
        {"role": role, "content": f"The {role} says something in turn {turn} about {NAMES[turn]}."}
        for turn in range(4)
        for role in ("user", "assistant")
    ]
    system = [{"role": "system", "content": HEAD}]
    later = [*system, *summary, *turns[4:], {"role": "user", "content": "And now?"}]
    assert diagnose([[*system, *turns], later]).kinds == ("history_cut",)


# -- each rule by itself: the kind, the place in the later prompt, and the lengths of what differs ---------------------

STAYS, ALSO = "This long line stands in both of them.", "So does this one, which is long as well."


def pair_of(one: PromptLike, other: PromptLike) -> Pair:
    a, b = (parts_of(as_record(prompt, 0)) for prompt in (one, other))
    return cut_pair(a, b, common_parts(a, b), ())


def test_a_detail_is_told_once_per_kind_from_where_it_differs():
    def varied(part: int, start: int, one: str, other: str, *kinds: str) -> Varied:
        return Varied(Unit(part, start, one), Unit(part, start, other), kinds)  # type: ignore[arg-type]

    found = varied_changes(
        [
            varied(1, 7, "at 10:59 id: x1", "at 11:02 id: x2", "clock", "id"),
            varied(1, 40, "at 10:59", "at 11:02", "clock"),
            varied(2, 0, "score: 0.5", "score: 0.75", "score"),
        ]
    )
    assert list(found) == [
        Change("clock", 1, 11, 11, 11),  # "at 1" is the same in both
        Change("id", 1, 11, 11, 11),
        Change("score", 2, 9, 1, 2),
    ]


def test_a_mapping_is_found_where_each_prompt_has_it():
    pair = pair_of(f"x {{'a': 1, 'b': 2}}\n{STAYS}", f"yy {{'b': 2, 'a': 1}}\n{STAYS}\n{{'a': 1, 'b': 2}}")
    assert metadata_places(pair) == [((1, 2, 13), (1, 3, 13))]
    assert metadata_places(pair_of("x {'a': 1, 'b': 2}", "y {'a': 1, 'b': 2}")) == []
    assert metadata_places(pair_of("x {'a': 1, 'b': 2}", "y {'b': 2, 'a': 3}")) == []


def question_places(pair, one, other):
    return question_place(pair.a, one, pair.at), question_place(pair.b, other, pair.at)


def test_a_known_question_is_found_behind_the_first_difference_only():
    one, other = f"Who was it?\n{STAYS}\nWho was it?", f"And who is she?\n{STAYS}\nWho was it?"
    pair = pair_of(one, other)
    assert question_places(pair, "Who was it?", "And who is she?") == ((1, 0, 11), (1, 0, 15))
    assert question_places(pair, " Who was it?\n", "Not there") == ((1, 0, 11), None)
    assert list(question_change(pair, ((1, 0, 11), (1, 0, 15)))) == [Change("question_before_context", 1, 0, 11, 15)]
    assert list(question_change(pair, ((1, 0, 11), (1, len(other) - 1, 1)))) == []  # nothing shared behind it
    assert list(question_change(pair, (None, (1, 0, 15)))) == []


def test_a_question_that_is_not_known_is_told_by_its_label_its_heading_or_its_message():
    for one, other, length in (
        (f"Question: who?\n{STAYS}", f"Question: where?\n{STAYS}", len("Question: where?")),
        (f"## Query:\nwho?\n{STAYS}", f"## Query:\nwhere?\n{STAYS}", len("where?")),
    ):
        assert question_places(pair_of(one, other), "", "")[1] == (1, other.index("where?") + 6 - length, length)
    chat = [[{"role": "user", "content": text}, {"role": "tool", "content": STAYS}] for text in (" who?", " where?")]
    assert question_places(pair_of(*chat), "", "") == ((1, 1, 4), (1, 1, 6))
    assert question_places(pair_of(f"who?\n{STAYS}", f"where?\n{STAYS}"), "", "") == (None, None)


def test_units_are_covered_where_they_overlap_a_place():
    side = pair_of(f"one\ntwo\nthree\n{STAYS}", f"four\n{STAYS}").a
    assert [unit.text for unit in covered(side, (1, 2, 3))] == ["one", "two"]
    assert [unit.text for unit in covered(side, (1, 3, 1))] == []
    assert covered(side, (1, len("one\ntwo\nthree\n"), 5)) == []  # what both hold is no one's own
    assert covered(side, None) == []


def test_memories_are_told_by_a_word_or_by_how_little_they_are():
    def chat(system: str, user: str = ALSO) -> list[dict[str, str]]:
        return [{"role": "system", "content": f"{system}\n{STAYS}"}, {"role": "user", "content": user}]

    memory = Change("memory_in_system", 1, 0, len("They remember tea."), len("They remember the dog."))
    assert list(memory_change(pair_of(chat("They remember tea."), chat("They remember the dog.")), ())) == [memory]
    small = pair_of(chat("Likes tea."), chat("Has a dog."))
    assert list(memory_change(small, ())) == [Change("memory_in_system", 1, 0, 10, 10)]
    large = pair_of(chat("Likes tea. " * 9), chat("Has a big dog. " * 9))
    assert list(memory_change(large, ())) == []  # more than what both hold in later messages: documents, it seems
    assert list(memory_change(small, small.b.fresh)) == []  # explained otherwise


def test_a_history_was_cut_where_a_message_stood_further_back():
    def chat(*turns: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": "S"}, *({"role": "user", "content": turn} for turn in turns)]

    def found(one: list[dict[str, str]], other: list[dict[str, str]]) -> list[Change]:
        return list(history_change(pair_of(one, other)))

    assert found(chat("first", "second", "third"), chat("third", "fourth")) == [Change("history_cut", 2, 0, 11, 0)]
    assert found(chat("first", "second", "third"), chat("a summary", "third")) == [Change("history_cut", 2, 0, 11, 9)]
    assert found(chat("first", "second"), chat("a", "summary", "second")) == []  # it stands where it stood, or later
    assert found(chat("first", ""), chat("")) == []


def test_documents_are_judged_without_what_was_explained():
    pair = pair_of(f"{STAYS}\n{ALSO}\nend", f"{ALSO}\nIn between stands something new.\n{STAYS}\nend")
    order = Change("document_order", 1, 0, len(STAYS), len(ALSO))
    new = Change("document_set", 1, len(ALSO) + 1, 0, len("In between stands something new."))
    assert list(document_changes(pair, (), ())) == [order, new]
    assert list(document_changes(pair, (), pair.b.fresh)) == [order]
    short = pair_of(f"{STAYS}\nx\n{ALSO}", f"{STAYS}\ny\n{ALSO}")
    assert list(document_changes(short, (), ())) == [Change("other", 1, len(STAYS) + 1, 1, 1)]


def test_text_that_differs_in_a_detail_is_shared_text_to_the_order_of_documents():
    one, other = f"x\nid: 1\n{STAYS}", f"y\n{STAYS}\nid: 2"
    pair = pair_of(one, other)
    twins = Varied(pair.a.units[1], pair.b.units[2], ("id",))
    assert [change.kind for change in document_changes(pair, (), ())] == ["other"]
    assert [change.kind for change in document_changes(pair, (twins,), ())] == ["document_order", "other"]


@given(st.lists(st.sampled_from("ab"), max_size=5), st.lists(st.sampled_from("ab"), max_size=5))
def test_the_common_head_of_two_lists(one: list[str], other: list[str]):
    count = common_count(one, other)
    assert one[:count] == other[:count]
    assert count == min(len(one), len(other)) or one[count] != other[count]
