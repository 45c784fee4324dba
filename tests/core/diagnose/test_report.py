"""What a diagnosis says: places, lengths and tokens in words, and never a word of the prompts."""

import json
from dataclasses import asdict, replace
from typing import get_args

import pytest

from contextpilot_core.diagnose import Diagnosis, Finding, Kind, PairDiagnosis, PromptRecord, diagnose
from contextpilot_core.diagnose.report import FINE, MEANINGS
from tests.core.diagnosed import FIRST, HEAD, context, templated


def test_nothing_of_the_prompts_is_in_the_result():
    secret = "The launch code of the silo is tulip."
    texts = [f"Time: 10:5{n}\n{HEAD}\n\n{secret}\n\n{context(FIRST)}\n\nQuestion: {n}?" for n in range(3)]
    diagnosis = diagnose([PromptRecord(prompt=t, question=f"{n}?") for n, t in enumerate(texts)], documents=[secret])
    for shown in (repr(diagnosis), diagnosis.explain(), json.dumps(asdict(diagnosis))):
        assert "tulip" not in shown
        assert "alpha" not in shown


def test_explain_says_where_what_it_costs_and_what_to_change():
    text = diagnose([f"Time: 1{n}:59\n{templated(FIRST, 'a?')}" for n in range(2)], kv_block=16).explain()
    assert "Prompt 2 against prompt 1" in text
    assert "They first differ at message 0, character 7, before every document." in text
    assert "tokens of reuse. Move it behind the documents" in text
    fine = diagnose([templated(FIRST, "a?")] * 2).explain()
    assert fine.endswith("Nothing here keeps the prefix cache from working.")


CLOCK = Finding(kind="clock", message=0, offset=1_234, length_before=5, length_after=6, lost_tokens=1_600)
TAIL = Finding(kind="tail", message=1, offset=0, length_before=10, length_after=2_000, lost_tokens=0)
PAIR = PairDiagnosis(
    prompt=1,
    against=0,
    message=0,
    offset=1_234,
    documents_before=0,
    documents_behind=3,
    prompt_tokens=2_100,
    common_tokens=330,
    reused_tokens=320,
    reused_tokens_upper=320,
    possible_tokens=1_920,
    findings=(CLOCK, TAIL),
)


def test_every_kind_has_a_meaning_and_an_advice():
    assert set(MEANINGS) == set(get_args(Kind))
    assert len({meaning for meaning, _ in MEANINGS.values()}) == len(MEANINGS)
    assert {kind for kind, (_, advice) in MEANINGS.items() if advice == "Nothing to change."} == FINE


def test_the_words_of_a_diagnosis():
    told = PAIR.explain(16).splitlines()
    assert told == [
        "Prompt 2 against prompt 1: 330 of 2,100 tokens stand in the common head, 320 can be reused in KV blocks of "
        "16; 1,600 are lost.",
        "  They first differ at message 0, character 1,234, before every document.",
        "  clock: a time or date changes at message 0, character 1,234 (5 characters became 6).",
        "    It costs 1,600 tokens of reuse. Move it behind the documents, next to the question, or leave it out "
        "(or round it to the day).",
        "  tail: only what stands last differs at message 1, character 0 (10 characters became 2,000).",
        "    It costs nothing. Nothing to change.",
    ]
    whole = Diagnosis(kv_block=16, pairs=(PAIR, PAIR))
    assert str(whole) == whole.explain()
    assert whole.explain().splitlines() == [*told, *told, "3,200 tokens of reuse are lost: clock."]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"message": None}, "  They first differ at the tools, character 1,234, before every document."),
        ({"documents_before": 1}, "  They first differ at message 0, character 1,234."),
        ({"documents_behind": 0}, "  They first differ at message 0, character 1,234."),
        ({"findings": (replace(TAIL, kind="appended"),)}, None),
        (
            {"reused_tokens_upper": 400},
            "Prompt 2 against prompt 1: 330 of 2,100 tokens stand in the common head, 320 (400 with the answer) can be "
            "reused in KV blocks of 16; 1,600 are lost.",
        ),
    ],
)
def test_what_is_said_depends_on_what_there_is(changes: dict[str, object], line: str | None):
    told = replace(PAIR, **changes).explain(16).splitlines()  # type: ignore[arg-type]
    if line is None:
        assert not any("first differ" in one for one in told)
    else:
        assert line in told


def test_a_finding_is_fine_when_its_kind_is_or_when_it_costs_nothing():
    assert (CLOCK.fine, CLOCK.advice) == (False, MEANINGS["clock"][1])
    cheap = replace(CLOCK, lost_tokens=0)
    assert (cheap.fine, cheap.meaning, cheap.advice) == (True, MEANINGS["clock"][0], "Nothing to change.")
    assert replace(TAIL, lost_tokens=5).fine


def test_sums_over_all_pairs():
    score = replace(CLOCK, kind="score")
    whole = Diagnosis(kv_block=16, pairs=(PAIR, replace(PAIR, findings=(score, CLOCK, replace(score, lost_tokens=0)))))
    assert whole.kinds == ("clock", "score")
    assert [finding.kind for finding in whole.findings] == ["clock", "tail", "score", "clock", "score"]
    assert (whole.reused_tokens, whole.lost_tokens, whole.fine) == (640, 3_200, False)
    assert Diagnosis(kv_block=16, pairs=()).fine
