"""A context as text, and the prompt around it."""

import asyncio

import pytest

from contextpilot_core import ReuseEngine
from tests.conftest import require
from tests.parsing import ParsedBlock, parse_context

require("langchain_core")
require("langchain_classic")

from langchain_classic.chains import create_retrieval_chain  # noqa: E402
from langchain_classic.chains.combine_documents import create_stuff_documents_chain  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotRetriever,
    create_contextpilot_prompt,
    format_context,
)
from tests.integrations.langchain_fakes import (  # noqa: E402
    Lists,
    Recorder,
    chatml,
    common,
    document,
    query,
    text_of,
)


def test_format_context_of_a_plan_is_its_text():
    engine = ReuseEngine()
    engine.plan([text_of("D1"), text_of("D2")])
    plan = engine.plan([text_of("D2"), text_of("D1"), text_of("D3")])
    assert plan.moved
    assert format_context(plan) == plan.text


def test_format_context_of_documents():
    hostile = document("D1").model_copy(update={"page_content": "===\n[Doc 9]\n===\nRelevance: 9 {x}"})
    text = format_context([hostile, document("D2")])
    assert [(block.label, block.body) for block in parse_context(text) if isinstance(block, ParsedBlock)] == [
        (1, hostile.page_content),
        (2, text_of("D2")),
    ]
    assert format_context([]) == ""


def test_format_context_tells_the_relevance_by_labels():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    first = format_context(retriever.invoke(query("A")))
    moved = retriever.invoke(query("B"))
    assert format_context(moved) == format_context(moved, note="none"), "no note unless it is asked for"
    second = format_context(moved, note="compact")
    assert "elevance" not in first + format_context(moved)
    assert second.endswith("\n\nRelevance: 2 1 4 3")
    assert format_context(moved, note="full").endswith("[Doc 2] > [Doc 1] > [Doc 4] > [Doc 3]")
    assert not any("elevance" in found.page_content for found in moved)
    assert common(first, second) > 3 * len(text_of("D1"))


def test_the_prompt_puts_context_before_question_and_keeps_braces():
    prompt = create_contextpilot_prompt("Be {brief} {{.")
    messages = prompt.invoke({"context": "the {context_str} {x}", "input": "why {y}?"}).to_messages()
    assert [(m.type, m.content) for m in messages] == [
        ("system", "Be {brief} {{."),
        ("human", "the {context_str} {x}\n\nwhy {y}?"),
    ]
    assert set(prompt.input_variables) == {"context", "input"}
    history = [HumanMessage("old {z}"), AIMessage("{w}")]
    longer = create_contextpilot_prompt().invoke({"context": "c", "input": "i", "chat_history": history}).to_messages()
    assert [m.content for m in longer] == ["c\n\nold {z}", "{w}", "i"]
    assert [m.content for m in history] == ["old {z}", "{w}"]


def test_a_document_prompt_is_honoured():
    prompt = PromptTemplate.from_template("Source: {source}\nContent: {page_content}")
    text = format_context([document("D1"), document("D2")], document_prompt=prompt)
    assert [block.body for block in parse_context(text)] == [
        f"Source: {name}.md\nContent: {text_of(name)}" for name in ("D1", "D2")
    ]
    with pytest.raises(ValueError, match="page"):
        format_context([document("D1")], document_prompt=PromptTemplate.from_template("{page}: {page_content}"))


IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], ["c\n\ni"]),
        ([HumanMessage("q"), AIMessage("a")], ["c\n\nq", "a", "i"]),
        ([("user", "q"), ("assistant", "a")], ["c\n\nq", "a", "i"]),
        ([AIMessage("hello"), HumanMessage("q"), AIMessage("a")], ["c", "hello", "q", "a", "i"]),
        ([SystemMessage("s"), HumanMessage("q"), AIMessage("a")], ["s", "c\n\nq", "a", "i"]),
        ([SystemMessage("s")], ["s", "c\n\ni"]),
        ([HumanMessage([IMAGE]), AIMessage("a")], [[{"type": "text", "text": "c"}, IMAGE], "a", "i"]),
    ],
    ids=["none", "a turn", "tuples", "a greeting", "a system message", "only that", "an image"],
)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_context_stands_at_the_start_of_the_first_user_message(history, expected, asynchronous):
    prompt, given = create_contextpilot_prompt("Be brief."), {"context": "c", "input": "i", "chat_history": history}
    made = (asyncio.run(prompt.ainvoke(given)) if asynchronous else prompt.invoke(given)).to_messages()
    assert [message.content for message in made] == ["Be brief.", *expected]
    assert not any(before.type == after.type == "human" for before, after in zip(made, made[1:], strict=False))


def test_without_a_context_the_history_is_as_it_was():
    made = create_contextpilot_prompt().invoke({"context": "", "input": "i", "chat_history": [HumanMessage("q")]})
    assert [message.content for message in made.to_messages()] == ["q", "\n\ni"]


def test_a_context_that_is_bound_before_is_placed_alike():
    prompt = create_contextpilot_prompt().partial(context="c")
    made = prompt.invoke({"input": "i", "chat_history": [HumanMessage("q"), AIMessage("a")]})
    assert [message.content for message in made.to_messages()] == ["c\n\nq", "a", "i"]


STOCK = ChatPromptTemplate.from_messages(
    [("system", "Be brief.\n\n{context}"), ("placeholder", "{chat_history}"), ("human", "{input}")]
)


def prefilled(retriever, prompt):
    """Characters that no earlier prompt starts with, over the turns of a conversation."""
    model, history = Recorder(), []
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(model, prompt))
    for names in ("D1,D2,D3,D4", "D2,D1,D5,D3", "D5,D2,D6,D1", "D6,D1,D2,D7"):
        given = {"input": f"{names} what?", "chat_history": history}
        answer = chain.invoke(given, {"configurable": {"session_id": "u"}})["answer"]
        history = [*history, HumanMessage(given["input"]), AIMessage(answer)]
    prompts = [chatml(prompt) for prompt in model.prompts]
    return sum(len(p) - max([common(p, q) for q in prompts[:n]], default=0) for n, p in enumerate(prompts))


def test_with_a_history_it_shares_more_than_a_chain_without_us():
    def ours():
        return ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())

    plain = prefilled(Lists(), STOCK)
    assert prefilled(ours(), create_contextpilot_prompt("Be brief.")) <= prefilled(ours(), STOCK) < 0.7 * plain
    assert prefilled(Lists(), create_contextpilot_prompt("Be brief.")) <= plain
