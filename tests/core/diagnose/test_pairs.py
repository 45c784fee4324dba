"""Two prompts cut into units: what both hold behind the place where they first differ, and what each has alone."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.diagnose.pairs import Pair, Side, cut_pair, document_spans
from contextpilot_core.diagnose.records import TOOLS, Part, Unit, common_parts
from tests.core.diagnosed import DOCS, HEAD

ALPHA, BETA, GAMMA = "This is about alpha, at length.", "This is about beta, at length.", "And this is about gamma."
TOOLS_PART = Part(TOOLS, "")


def texts(units: tuple[Unit, ...]) -> list[str]:
    return [unit.text for unit in units]


def cut(one: str, other: str, documents: tuple[str, ...] = ()) -> Pair:
    a, b = ((TOOLS_PART, Part("user", text)) for text in (one, other))
    return cut_pair(a, b, common_parts(a, b), documents)


def test_a_pair_by_hand():
    pair = cut(f"{HEAD}\n[1]\n{ALPHA}\n[2]\n{BETA}", f"{HEAD}\n[1]\n{BETA}\nNew\n[2]\n{ALPHA}")
    assert pair.at == (1, len(f"{HEAD}\n[1]\nThis is about "))
    assert texts(pair.b.rest) == [BETA, "New", "[2]", ALPHA]
    assert texts(pair.b.shared) == [BETA, ALPHA]
    assert texts(pair.a.shared) == [ALPHA, BETA]
    assert texts(pair.b.own) == ["New", "[2]"]  # labels are too short to be shared
    assert texts(pair.b.fresh) == ["New"]
    assert (texts(pair.a.own), texts(pair.a.fresh)) == (["[2]"], [])
    assert pair.a.role(pair.a.rest[0]) == "user"


def test_the_first_of_equal_units_are_paired_off():
    pair = cut(f"x\n{ALPHA}\n{BETA}\n{ALPHA}", f"y\n{ALPHA}\n{ALPHA}\n{ALPHA}")
    assert texts(pair.a.shared) == [ALPHA, ALPHA]
    assert [unit.start for unit in pair.b.shared] == [2, 2 + len(ALPHA) + 1]
    assert texts(pair.b.own) == ["y", ALPHA]
    assert texts(pair.b.fresh) == ["y"]  # the third has its text in the other prompt


def test_what_stands_before_the_first_difference_is_no_part_of_it():
    pair = cut(f"{ALPHA}\nx\n{BETA}", f"{ALPHA}\ny\n{ALPHA}\n{BETA}")
    assert texts(pair.b.shared) == [BETA]
    assert texts(pair.b.fresh) == ["y", ALPHA]


def test_the_template_behind_known_documents_is_not_paired_off():
    rule = "Answer the question in one or two sentences, please."
    one, other = f"x\n{ALPHA}\n{BETA}\n{rule}", f"y\n{BETA}\n{ALPHA}\n{rule}"
    assert texts(cut(one, other).b.shared) == [BETA, ALPHA, rule]
    assert texts(cut(one, other, (ALPHA, BETA)).b.shared) == [BETA, ALPHA]
    assert texts(cut(one, other, ("not there",)).b.shared) == [BETA, ALPHA, rule]
    # in one of them it stands before the last document: there it is text like any other
    between = f"y\n{BETA}\n{rule}\n{ALPHA}"
    assert texts(cut(one, between, (ALPHA, BETA)).b.shared) == [BETA, rule, ALPHA]


def test_the_history_between_the_documents_and_the_question_is_paired_off():
    def prompt(first: str) -> tuple[Part, ...]:
        return TOOLS_PART, Part("system", f"{first}\n{ALPHA}"), Part("user", BETA), Part("user", GAMMA)

    a, b = prompt("x"), prompt("y")
    pair = cut_pair(a, b, common_parts(a, b), [ALPHA])
    assert texts(pair.b.shared) == [ALPHA, BETA]  # what stands in the last message has to stand there


def test_documents_are_found_where_they_first_stand():
    parts = [Part(TOOLS, ALPHA), Part("system", f"{BETA} {ALPHA}"), Part("user", ALPHA)]
    places = document_spans(parts, [f" {ALPHA}\n", GAMMA, BETA, ALPHA, "", "  "])
    assert places == [(1, len(BETA) + 1, len(BETA) + 1 + len(ALPHA)), (1, 0, len(BETA))]


lines = st.lists(st.sampled_from([*DOCS.values(), ALPHA, BETA, "[1]", "[2]", "short"]), max_size=8).map("\n".join)


@given(lines, lines, lines)
def test_rest_is_what_both_hold_and_what_each_has_alone(head: str, one: str, other: str):
    pair = cut(f"{head}{one}", f"{head}{other}")
    for side, opposite in ((pair.a, pair.b), (pair.b, pair.a)):
        check_side(side, opposite, pair.at)
    assert Counter(texts(pair.a.shared)) == Counter(texts(pair.b.shared))


def check_side(side: Side, opposite: Side, at: tuple[int, int]) -> None:
    assert side.rest == tuple(unit for unit in side.units if (unit.part, unit.end) > at)
    assert sorted([*side.shared, *side.own], key=lambda unit: (unit.part, unit.start)) == list(side.rest)
    assert all(unit.long for unit in side.shared)
    assert side.elsewhere == frozenset(texts(opposite.rest))
    assert set(side.fresh) == {unit for unit in side.own if unit.text not in side.elsewhere}
    both = Counter(u.text for u in side.rest if u.long) & Counter(u.text for u in opposite.rest if u.long)
    assert Counter(texts(side.shared)) == both
