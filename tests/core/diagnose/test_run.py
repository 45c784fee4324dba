"""Diagnosis on texts of known shape; the real frameworks are in tests/integrations/doctor/test_probe.py."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.diagnose import Diagnosis, PromptRecord, canonical_tools, diagnose, reusable_tokens
from contextpilot_core.errors import ConfigError, RequestError, RequestTypeError

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
DOCS = {
    n: f"About {n}: {n} came first. " + f"The {n} thing is told here in many words. " * 5 + f"So ends {n}."
    for n in NAMES
}
FIRST = NAMES[:4]
REORDERED = ("alpha", "beta", "gamma", "epsilon")
RETRIEVED = ("beta", "alpha", "epsilon", "gamma")
HEAD = "You are an assistant for question-answering tasks. Use the given context to answer the question."


def words(text):
    return len(text.split())


def context(names, separator="\n\n"):
    return separator.join(DOCS[name] for name in names)


def stuffed(names, question, head=HEAD):
    return [{"role": "system", "content": f"{head}\n\n{context(names)}"}, {"role": "user", "content": question}]


def templated(names, question):
    return f"{HEAD}\n\nContext:\n{context(names)}\n\nQuestion: {question}\nAnswer:"


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": f"Does what {name} does.", "parameters": parameters}
    return {"type": "function", "function": function}


def only(diagnosis):
    assert len(diagnosis.pairs) == 1
    return diagnosis.pairs[0]


# --- S8: a clock at the head


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


# --- S9: tools


def test_s9_tool_order_is_named_and_costs_all_that_follows():
    messages = stuffed(FIRST, "What?")
    a, b = tool("search", query={"type": "string"}), tool("fetch", url={"type": "string"})
    diagnosis = diagnose([{"messages": messages, "tools": [a, b]}, {"messages": messages, "tools": [b, a]}])
    finding = diagnosis.findings[0]
    assert (finding.kind, finding.message) == ("tool_order", None)
    assert finding.lost_tokens > 250
    assert "canonical_tools" in finding.advice


@pytest.mark.parametrize("others", [["search"], ["search", "fetch", "more"], ["search", "other"], []])
def test_s9_another_set_is_not_reported_as_order(others):
    messages = stuffed(FIRST, "What?")
    prompts = [{"messages": messages, "tools": [tool(n) for n in names]} for names in (["fetch", "search"], others)]
    assert [f.kind for f in diagnose(prompts).findings] == ["tool_set"]


def test_s9_keys_in_another_order_are_named():
    one = tool("search", query={"type": "string"})
    two = {"function": dict(reversed(one["function"].items())), "type": "function"}
    prompts = [{"messages": stuffed(FIRST, "What?"), "tools": tools} for tools in ([one], [two])]
    assert diagnose(prompts).kinds == ("tool_keys",)


def test_tools_rendered_in_a_text_are_named_too():
    lines = [json.dumps(tool(name, query={"type": "string"})) for name in ("search", "fetch")]
    prompts = [
        "\n".join(["# Tools", *order, HEAD, context(FIRST), "Question: what?"]) for order in (lines, lines[::-1])
    ]
    assert diagnose(prompts).kinds == ("tool_order",)


def test_canonical_tools_are_equal_bytes_and_leave_the_given_alone():
    a, b = tool("search", query={"type": "string"}, k={"type": "integer"}), tool("fetch", url={"type": "string"})
    shuffled = {"function": dict(reversed(a["function"].items())), "type": "function"}
    before = json.dumps([a, b])
    assert json.dumps(canonical_tools([a, b])) == json.dumps(canonical_tools([b, shuffled, b]))
    assert json.dumps([a, b]) == before
    assert [t["function"]["name"] for t in canonical_tools([a, b])] == ["fetch", "search"]
    assert canonical_tools([]) == []


@pytest.mark.parametrize("wrong", [["search"], [{"name": object()}], [{"name": float("nan")}]])
def test_canonical_tools_refuse_what_json_cannot(wrong):
    with pytest.raises(RequestTypeError, match=r"tools\[0\]"):
        canonical_tools(wrong)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
tool_lists = st.lists(st.dictionaries(st.sampled_from(["name", "type", "function", "x"]), json_values), max_size=4)


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(inner) for inner in value] if isinstance(value, list) else value


@given(tool_lists, st.randoms())
def test_any_order_of_tools_and_keys_is_one_form(tools, random):
    shuffled = [reversed_keys(entry) for entry in tools]
    random.shuffle(shuffled)
    assert json.dumps(canonical_tools(tools)) == json.dumps(canonical_tools(shuffled))
    assert canonical_tools(canonical_tools(tools)) == canonical_tools(tools)


# --- S10: memories


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


# --- the other kinds


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


def test_history_behind_documents_is_a_loss():
    turns = [{"role": "user", "content": "Tell me more."}, {"role": "assistant", "content": f"Gladly: {'so ' * 90}"}]
    prompts = [[*stuffed((name,), "")[:1], *turns, {"role": "user", "content": "And?"}] for name in ("alpha", "beta")]
    diagnosis = diagnose(prompts, documents=list(DOCS.values()))
    assert diagnosis.kinds == ("document_set",)
    assert diagnosis.lost_tokens > 60


@pytest.mark.parametrize("same", [True, False])
def test_appending_is_fine(same):
    first = stuffed(FIRST, "What?")
    second = first if same else [*first, {"role": "assistant", "content": "That."}, {"role": "user", "content": "Why?"}]
    diagnosis = diagnose([first, second])
    assert diagnosis.fine
    assert [f.kind for f in diagnosis.findings] == ["appended"]
    assert diagnosis.lost_tokens == 0


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


@pytest.mark.parametrize("body", ["The ash is a tree. " * 40, "白蜡树是一种树。" * 60, "Is it? No! " * 60])
def test_short_sentences_count(body):
    pair = only(diagnose([f"Time: 10:59\n{body}", f"Time: 11:02\n{body}"], kv_block=1))
    assert pair.lost_tokens > 0.9 * pair.prompt_tokens


@pytest.mark.parametrize("label", ["[{}] ", "{}. ", "{}) ", "Source {}: "])
def test_labels_of_position_at_the_head_of_a_text_follow_the_order_only(label):
    def numbered_list(names):
        return f"{HEAD}\n\n" + "\n\n".join(label.format(n) + DOCS[name] for n, name in enumerate(names, 1)) + "\n\nQ: x"

    assert diagnose([numbered_list(FIRST), numbered_list(FIRST[::-1])]).kinds == ("document_order",)
    assert diagnose([numbered_list(FIRST), numbered_list(REORDERED)]).fine


def test_what_has_no_name_is_still_located():
    prompts = [f"Lang: {lang}\n{HEAD}\n\n{context(FIRST)}\n\nGo on." for lang in ("de", "en")]
    pair = only(diagnose(prompts))
    assert diagnose(prompts).kinds == ("other",)
    assert pair.offset == len("Lang: ")
    assert pair.lost_tokens > 250


def test_a_prompt_is_compared_with_the_earlier_one_that_shares_most():
    prompts = [templated(FIRST, "a?"), templated(("delta", "epsilon"), "b?"), templated(REORDERED, "c?")]
    assert [(pair.prompt, pair.against) for pair in diagnose(prompts).pairs] == [(1, 0), (2, 0)]


# --- values


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
