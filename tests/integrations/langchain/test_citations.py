"""From the labels of an answer to the documents, wherever the answer came from."""

import asyncio

import pytest

from contextpilot_core import EngineConfig, RequestError, RequestTypeError, ReuseEngine, citations
from contextpilot_integrations.reorder.ranks import PLACE, RANK, SOURCES
from tests.conftest import require

require("langchain_core")
require("langchain")
require("langgraph")

from langchain.agents import create_agent  # noqa: E402
from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.prompts import PromptTemplate  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotMiddleware,
    ContextPilotRetriever,
    create_contextpilot_retriever_tool,
    format_context,
    sources_of,
)
from contextpilot_integrations.langchain.documents import as_block  # noqa: E402
from tests.integrations.langchain_chats import HOWS, Stored, U, chat_of  # noqa: E402
from tests.integrations.langchain_fakes import Lists, Recorder, document, text_of  # noqa: E402

TURNS = ["D1,D2 what?", "D2,D3 what?", "D3,D1 what?"]


def answers(chat, how, turns=TURNS, config=U):
    """The answers to these questions, as the caller gets them; of a stream the first piece."""
    if how == "invoke":
        return [chat.invoke(question, config) for question in turns]
    if how == "stream":
        return [list(chat.stream(question, config))[0] for question in turns]
    if how == "batch":
        return [chat.batch([question], [config])[0] for question in turns]

    async def ask(question):
        if how == "ainvoke":
            return await chat.ainvoke(question, config)
        return [piece async for piece in chat.astream(question, config)][0]

    return [asyncio.run(ask(question)) for question in turns]


def named(sources):
    return {label: (each.id, each.page_content, each.metadata) for label, each in sources.items()}


def expected(**labels):
    return {int(label[1:]): (f"id-{n}", text_of(n), {"source": f"{n}.md"}) for label, n in labels.items()}


ALL = expected(_1="D1", _2="D2", _3="D3")


@pytest.mark.parametrize("how", [*HOWS, "batch"])
def test_every_answer_of_a_chat_carries_all_that_its_prompt_shows(how):
    chat, _ = chat_of()
    first, second, third = answers(chat, how)
    assert named(sources_of(first)) == expected(_1="D1", _2="D2")
    assert named(sources_of(second)) == ALL
    assert named(sources_of(third)) == ALL, "the third question brought hints alone"
    assert named(sources_of(chat.history("u"))) == ALL


@pytest.mark.parametrize("how", HOWS)
def test_an_answer_is_resolved_and_what_it_made_up_is_told(how):
    model = Recorder(answer=lambda messages: AIMessage("Drawers [Doc 1] and [Doc 3, 9]."))
    chat, _ = chat_of(model)
    *_, last = answers(chat, how)
    text = last.text if how in ("invoke", "ainvoke") else "Drawers [Doc 1] and [Doc 3, 9]."
    cited = citations(text, sources_of(last))
    assert {label: each.metadata["source"] for label, each in cited.sources.items()} == {1: "D1.md", 3: "D3.md"}
    assert cited.unknown == (9,)


@pytest.mark.parametrize("how", HOWS)
def test_after_a_restart_a_kept_history_still_knows(how):
    store = []
    answers(chat_of(history=lambda session_id: Stored(store))[0], how, TURNS[:2])
    restarted, _ = chat_of(history=lambda session_id: Stored(store), engine=ReuseEngine())
    assert named(sources_of(restarted.history("u"))) == ALL
    (third,) = answers(restarted, how, TURNS[2:])
    assert named(sources_of(third)) == ALL


def test_what_the_window_dropped_is_gone_and_what_is_shown_again_is_known():
    chat, model = chat_of(max_context_tokens=330)
    *_, last = answers(chat, "invoke", ["D1,D2 what?", "D3,D4 what?", "D1,D5 what?", "D6 what?"])
    shown = "".join(message.content for message in model.prompts[-1])
    for label, each in sources_of(last).items():
        assert f"[Doc {label}]\n===\n{each.page_content}" in shown
    assert named(sources_of(chat.history("u"))) == named(sources_of(last))


def test_documents_with_one_text_are_all_in_its_source():
    both = [document("D1", source="a"), Document(id="b7", page_content=text_of("D1"), metadata={"source": "b"})]
    chat, _ = chat_of(retriever=RunnableLambda(lambda query: both))
    (answer,) = answers(chat, "invoke", ["what?"])
    for source in (sources_of(answer)[1], sources_of(chat.history("u"))[1]):
        assert (source.id, source.metadata["source"]) == ("id-D1", "a")
        found = [(each["id"], each["metadata"]["source"]) for each in source.metadata[SOURCES]]
        assert found == [("id-D1", "a"), ("b7", "b")]


def test_behind_a_hook_of_ours_metadata_are_as_they_were():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    chat, _ = chat_of(retriever=retriever)
    *_, last = answers(chat, "invoke")
    assert named(sources_of(last)) == ALL


def test_a_document_prompt_changes_what_is_shown_and_not_the_document():
    chat, model = chat_of(document_prompt=PromptTemplate.from_template("From {source}: {page_content}"))
    *_, last = answers(chat, "invoke")
    assert named(sources_of(last)) == ALL
    assert "From D1.md: " + text_of("D1") in model.prompts[0][-1].content


def test_a_renderer_changes_what_is_shown_and_not_the_document():
    chat, _ = chat_of(engine=ReuseEngine(EngineConfig(renderer=lambda block: f"<{block.text}>")))
    *_, last = answers(chat, "invoke")
    assert named(sources_of(last)) == ALL
    assert named(sources_of(chat.history("u"))) == ALL


# --- agents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_agents_answer_of_turn_three_cites_turn_one(asynchronous):
    def answer(messages):
        last = messages[-1]
        if last.type == "human":
            call = {"name": "search", "args": {"query": last.content.split()[0]}, "id": f"c{len(messages)}"}
            return AIMessage("", tool_calls=[call])
        return AIMessage("As said in [Doc 1] and [Doc 3], not [Doc 8].")

    search = create_contextpilot_retriever_tool(Lists(), "search", "Finds.")
    agent = create_agent(
        Recorder(answer=answer), tools=[search], middleware=[ContextPilotMiddleware()], checkpointer=InMemorySaver()
    )
    config = {"configurable": {"thread_id": "t"}}
    for question in TURNS:
        given = {"messages": [HumanMessage(question)]}
        state = asyncio.run(agent.ainvoke(given, config)) if asynchronous else agent.invoke(given, config)
    assert named(sources_of(state)) == named(sources_of(state["messages"])) == ALL
    cited = citations(state["messages"][-1].text, sources_of(state))
    assert [each.id for each in cited.sources.values()] == ["id-D1", "id-D3"]
    assert cited.unknown == (8,)
    with pytest.raises(RequestError, match="give its whole state"):
        sources_of(state["messages"][-1])


# --- documents and plans -------------------------------------------------------------------------------------------


def test_the_documents_of_a_formatted_context_are_numbered_as_they_stand():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    retriever.invoke("D1,D2")
    found = retriever.invoke("D2,D3,D1")
    text = format_context(found)
    assert {RANK, PLACE} <= set(found[0].metadata)
    for label, each in sources_of(found).items():
        assert f"[Doc {label}]\n===\n{each.page_content}\n===" in text
        assert each.metadata == {"source": f"{each.id[3:]}.md"}


def test_the_sources_of_a_plan_are_its_documents():
    plan = ReuseEngine().plan([as_block(document("D2")), as_block(document("D1")), "a text"], query="q")
    found = sources_of(plan)
    assert (found[1], found[2], found[3]) == (document("D2"), document("D1"), Document("a text"))


def test_nothing_has_no_sources():
    for nothing in ([], {"messages": []}, {}, AIMessage("ok"), [HumanMessage("q"), AIMessage("ok")]):
        assert sources_of(nothing) == {}


@pytest.mark.parametrize("given", ["[Doc 1]", 3, None, [3], [document("D1"), AIMessage("ok")], {"messages": "text"}])
def test_anything_else_is_refused(given):
    with pytest.raises(RequestTypeError, match="sources_of takes"):
        sources_of(given)
