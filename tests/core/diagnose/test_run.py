"""Diagnosis on texts of known shape; the real frameworks are in tests/integrations/doctor/test_probe.py."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.diagnose import Diagnosis, PromptRecord, diagnose, reusable_tokens
from contextpilot_core.errors import ConfigError, RequestError, RequestTypeError
from tests.core.diagnosed import DOCS, FIRST, HEAD, NAMES, REORDERED, context, only, stuffed, templated, tool_lists


def words(text):
    return len(text.split())


# --- S12: whole KV blocks


def numbered(common, tail):
    return " ".join([f"w{number}" for number in range(common)] + tail)


@pytest.mark.parametrize(("kv_block", "reused"), [(16, 496), (528, 0), (1, 506)])
def test_s12_a_common_head_counts_in_whole_blocks(kv_block, reused):
    prompts = [numbered(506, ["a"] * 200), numbered(506, ["b"] * 209)]
    pair = only(diagnose(prompts, kv_block=kv_block, count=words))
    assert (pair.common_tokens, pair.prompt_tokens, pair.reused_tokens) == (506, 715, reused)


@pytest.mark.parametrize(("tokens", "reused"), [(1024, 0), (1025, 1024), (1, 0)])
def test_s12_the_last_token_is_always_computed(tokens, reused):
    pair = only(diagnose([numbered(tokens, [])] * 2, kv_block=1024, count=words))
    assert pair.common_tokens == tokens
    assert pair.reused_tokens == reused


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 600))
def test_reusable_tokens_are_whole_blocks_below_the_last_token(common, total, kv_block):
    reused = reusable_tokens(min(common, total), total, kv_block)
    assert reused % kv_block == 0
    assert 0 <= reused <= max(0, min(common, total - 1))
    assert min(common, total - 1) - reused < kv_block


# --- S13: what was generated


ANSWER = "Alpha is the first of them, as the first document says in its first sentence."


def test_s13_the_prompt_is_the_lower_bound_and_prompt_and_answer_the_upper():
    first = stuffed(FIRST, "What is alpha?")
    second = [*first, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And beta?"}]
    pair = only(diagnose([first, second], kv_block=1))
    assert pair.findings[0].kind == "appended"
    assert pair.reused_tokens_upper - pair.reused_tokens == pytest.approx(len(ANSWER) / 4, abs=4)
    known = only(diagnose([PromptRecord(prompt=first, generated=ANSWER), second], kv_block=1))
    assert known.reused_tokens == pair.reused_tokens
    assert known.reused_tokens_upper == pytest.approx(pair.reused_tokens_upper, abs=1)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_s13_reasoning_that_the_next_prompt_leaves_out_never_counts(field):
    first = stuffed(FIRST, "What is alpha?")
    reasoning = "<think>" + "Let me see what they say about alpha. " * 20 + "</think>"
    answer = {"role": "assistant", "content": ANSWER}
    second = [*first, answer, {"role": "user", "content": "And beta?"}]
    stripped = only(diagnose([PromptRecord(prompt=first, generated=reasoning + ANSWER), second], kv_block=1))
    assert stripped.reused_tokens_upper - stripped.reused_tokens <= len("assistant\n<") / 4
    in_a_field = [*first, {**answer, field: reasoning}, second[-1]]
    plain, fielded = (only(diagnose([first, prompt], kv_block=1)) for prompt in (second, in_a_field))
    assert fielded.reused_tokens_upper == plain.reused_tokens_upper


def test_s13_texts_know_the_answer_only_when_it_is_given():
    first = templated(FIRST, "What is alpha?")
    second = f"{first}{ANSWER}\nQuestion: And beta?\nAnswer:"
    pair = only(diagnose([first, second], kv_block=1))
    assert pair.findings[0].kind == "appended"
    assert pair.reused_tokens_upper == pair.reused_tokens
    known = only(diagnose([PromptRecord(prompt=first, generated=ANSWER), second], kv_block=1))
    assert known.reused_tokens_upper > known.reused_tokens


def test_shared_documents_first_are_fine():
    pair = only(diagnose([templated(FIRST, "What is alpha?"), templated(REORDERED, "What is beta?")]))
    assert [f.kind for f in pair.findings] == ["tail"]
    assert pair.reused_tokens > 150


def test_what_the_template_says_behind_the_documents_is_no_loss_where_they_are_known():
    rule = " Given this context and no prior knowledge, answer the question in one or two short sentences, please."

    def prompts(names):
        return f"{HEAD}\n\n{context(names)}\n{rule}\nQuestion: {names[-1]}?\n{rule}"

    known = [DOCS[name] for name in NAMES]
    assert diagnose([prompts(FIRST), prompts(REORDERED)], documents=known).fine
    same = [f"{HEAD}\n\n{context(FIRST)}\n\nQuestion: {question}?\n{rule}" for question in ("a", "b")]
    assert diagnose(same, documents=known).fine


@pytest.mark.parametrize("same", [True, False])
def test_appending_is_fine(same):
    first = stuffed(FIRST, "What?")
    second = first if same else [*first, {"role": "assistant", "content": "That."}, {"role": "user", "content": "Why?"}]
    diagnosis = diagnose([first, second])
    assert diagnosis.fine
    assert [f.kind for f in diagnosis.findings] == ["appended"]
    assert diagnosis.lost_tokens == 0


def test_what_has_no_name_is_still_located():
    prompts = [f"Lang: {lang}\n{HEAD}\n\n{context(FIRST)}\n\nGo on." for lang in ("de", "en")]
    pair = only(diagnose(prompts))
    assert diagnose(prompts).kinds == ("other",)
    assert pair.offset == len("Lang: ")
    assert pair.lost_tokens > 250


def test_a_prompt_is_compared_with_the_earlier_one_that_shares_most():
    prompts = [templated(FIRST, "a?"), templated(("delta", "epsilon"), "b?"), templated(REORDERED, "c?")]
    assert [(pair.prompt, pair.against) for pair in diagnose(prompts).pairs] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("prompts", [[], ["one"], [stuffed(FIRST, "a?")]])
def test_one_prompt_is_not_enough(prompts):
    with pytest.raises(RequestError, match="at least two"):
        diagnose(prompts)


def test_texts_and_messages_do_not_mix():
    with pytest.raises(RequestError, match="mixes texts and message lists"):
        diagnose(["text", stuffed(FIRST, "a?")])


@pytest.mark.parametrize("wrong", [7, b"bytes", {"input": "x"}, [["role"]], [{"content": "x"}], None])
def test_other_types_are_refused_with_the_way_out(wrong):
    with pytest.raises(RequestTypeError, match=r"prompts\[1\]"):
        diagnose(["text", wrong])


DEEP = []
for _ in range(5_000):
    DEEP = [DEEP]
SELF = {"role": "user"}
SELF["content"] = [SELF]


@pytest.mark.parametrize("part", [DEEP, SELF, {"n": 10**5_000}, {(1, 2): "odd key"}], ids=["deep", "self", "n", "key"])
@pytest.mark.parametrize("field", ["content", "tool_calls", "tools"])
def test_what_cannot_be_written_is_refused_with_its_place(part, field):
    wrong = {"messages": [{"role": "user", "content": "hi"}]}
    if field == "tools":
        wrong["tools"] = [{"name": "n", "parameters": part}]
    else:
        wrong["messages"][0][field] = [part]
    with pytest.raises(RequestTypeError, match=r"prompts\[1\] holds what JSON cannot"):
        diagnose([stuffed(FIRST, "a?"), wrong])


@pytest.mark.parametrize("wrong", [5, None, {"messages": []}, b"x"])
def test_one_thing_is_not_a_list_of_prompts(wrong):
    with pytest.raises(RequestTypeError, match="prompts is one .*; give a list of two or more"):
        diagnose(wrong)


@pytest.mark.parametrize("wrong", ["text", [5], ["a", None]])
def test_documents_are_texts(wrong):
    with pytest.raises(RequestTypeError, match="documents must be a list of texts"):
        diagnose([FIRST, FIRST], documents=wrong)


def test_numbers_of_thousands_of_digits_are_texts_like_others():
    prompts = [f"[Doc 1{digit * 5_000}] text\n1{digit * 5_000}. more text of the same kind\n" for digit in "12"]
    assert diagnose(prompts).pairs


def test_a_counter_that_counts_no_tokens_is_refused():
    with pytest.raises(ConfigError, match="token_counter returned <int>"):
        diagnose(["a", "b"], count=lambda text: 10**5_000)


def test_one_string_is_not_a_list_of_prompts():
    with pytest.raises(RequestTypeError, match="two or more"):
        diagnose("two prompts")


@pytest.mark.parametrize("kv_block", [0, -1, 1.5, True, "16"])
def test_kv_block_is_checked(kv_block):
    with pytest.raises(ConfigError, match="kv_block"):
        diagnose(["a", "b"], kv_block=kv_block)


lines = (
    *DOCS.values(),
    "Time: 10:59",
    "Time: 11:00",
    "[Doc 1]",
    "[Doc 2]",
    "score: 0.51",
    "score: 0.72",
    "\n",
    "\ud800",
)
odd_lines = ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "Question: who?", "Memories:", "x" * 30)
texts = st.text(max_size=60) | st.lists(st.sampled_from([*lines, *odd_lines]), max_size=8).map("\n".join)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
contents = st.none() | texts | st.lists(texts.map(lambda t: {"type": "text", "text": t}), max_size=2)
messages = st.lists(st.fixed_dictionaries({"role": roles, "content": contents}), max_size=4)
bodies = st.fixed_dictionaries({"messages": messages, "tools": tool_lists})


@settings(max_examples=150, deadline=None)
@given(st.lists(texts, min_size=2, max_size=4) | st.lists(bodies, min_size=2, max_size=4), st.integers(1, 40))
def test_any_prompts_give_a_consistent_diagnosis(prompts, kv_block):
    diagnosis = diagnose(prompts, kv_block=kv_block)
    assert diagnosis == diagnose(prompts, kv_block=kv_block)
    assert isinstance(diagnosis, Diagnosis)
    assert len(diagnosis.pairs) == len(prompts) - 1
    assert diagnosis.fine == (diagnosis.kinds == ())
    for pair in diagnosis.pairs:
        assert pair.against < pair.prompt
        assert pair.findings
        assert 0 <= pair.reused_tokens <= pair.common_tokens <= pair.prompt_tokens
        assert pair.reused_tokens <= pair.reused_tokens_upper <= pair.prompt_tokens
        assert pair.reused_tokens <= pair.possible_tokens <= pair.prompt_tokens
        assert pair.reused_tokens % kv_block == pair.possible_tokens % kv_block == 0
        assert all(0 <= f.lost_tokens <= pair.lost_tokens and f.offset >= 0 for f in pair.findings)
        assert all(f.length_before >= 0 and f.length_after >= 0 for f in pair.findings)
    diagnosis.explain()


@given(messages, messages)
def test_a_continued_prompt_is_always_fine(first, more):
    assert diagnose([first, [*first, *more]]).fine


def test_long_prompts_take_no_noticeable_time():
    base = "\n".join(f"Line {n} tells of thing {n * 7919 % 1000} and its score: 0.{n}" for n in range(3_000))
    one, two = "Time: 10:59\n" + base, "Time: 11:00\n" + base.replace("thing 7", "thing 8")
    for odd in (
        "{" * 50_000,
        "0." + "1" * 19_000 + "x",
        " " * 100_000,
        "a" * 19_000 + ":",
        "/a" * 9_000,
        "id " * 6_000,
    ):
        pair = only(diagnose([f"{one}\n{odd}1\nend a", f"{two}\n{odd}2\nend b"]))
        assert pair.findings
