"""The middleware in real agents: cases S14, D2, D3, checkpoints, clearing, summarising and redacting middleware."""

import asyncio
import json
import logging
import random

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from tests.conftest import require

require("langchain_core")
require("langchain")
require("langgraph")

from langchain.agents import create_agent  # noqa: E402
from langchain.agents.middleware import (  # noqa: E402
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelRequest,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import create_retriever_tool, tool  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotMiddleware,
    ContextPilotRetriever,
    create_contextpilot_retriever_tool,
)
from contextpilot_integrations.langchain.agent.cited import PLACES, documents_at  # noqa: E402
from tests.integrations.langchain.agent.results import contents, items, result  # noqa: E402
from tests.integrations.langchain_fakes import (  # noqa: E402
    Lists,
    Recorder,
    chatml,
    names_in,
    text_of,
)


def searching(*calls):
    """A model that makes these tool calls (a list is made at once) and then answers."""
    steps = iter(calls)

    def answer(messages):
        step = next(steps, None)
        if step is None:
            return AIMessage("done")
        queries = step if isinstance(step, list) else [step]
        return AIMessage(
            "",
            tool_calls=[
                {"name": "search", "args": {"query": q}, "id": f"{len(messages)}-{n}"} for n, q in enumerate(queries)
            ],
        )

    return Recorder(answer=answer)


def agent_of(model, *middleware, retriever=None, **options):
    search = create_contextpilot_retriever_tool(retriever or Lists(), "search", "Searches the documents.")
    return create_agent(model, tools=[search], middleware=[*middleware, ContextPilotMiddleware()], **options)


def asked(agent, text, thread=None, asynchronous=False):
    config = {"configurable": {"thread_id": thread}} if thread else {}
    if asynchronous:
        return asyncio.run(agent.ainvoke({"messages": [HumanMessage(text)]}, config))
    return agent.invoke({"messages": [HumanMessage(text)]}, config)


def extending(prompts):
    """Whether each prompt starts with the whole of the one before."""
    texts = [chatml(prompt) for prompt in prompts]
    return all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:], strict=False))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_agent_sends_each_text_once_and_only_appends(asynchronous):  # S14
    model = searching("D1,D2,D3", "D2,D1,D4", "D1")
    asked(agent_of(model), "go", asynchronous=asynchronous)
    assert len(model.prompts) == 4
    assert extending(model.prompts)
    final = chatml(model.prompts[-1])
    assert [final.count(text_of(f"D{n}")) for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    first, second, third = [m.content for m in model.prompts[-1] if isinstance(m, ToolMessage)]
    assert [block.label for block in items(first)] == [1, 2, 3]
    assert second.startswith("See [Doc 2] above.\n\nSee [Doc 1] above.\n\n[Doc 4]\n===\n")
    assert third == "See [Doc 1] above."


def test_across_turns_with_a_checkpoint():
    saver = InMemorySaver()
    model = searching("D1,D2", "D2,D1,D5")
    agent = agent_of(model, checkpointer=saver)
    asked(agent, "one", "t")
    model.answer = searching("D5,D1", "D6").answer
    asked(agent, "two", "t")
    assert extending(model.prompts)
    assert all(chatml(model.prompts[-1]).count(text_of(f"D{n}")) == 1 for n in (1, 2, 5, 6))
    stored = agent.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    results = [message for message in stored if isinstance(message, ToolMessage)]
    assert results[0].content == text_of("D1") + "\n\n" + text_of("D2")  # the state keeps them whole
    assert names_in(results[-1].content) == {"D6"}


def test_parallel_calls_share_too():
    model = searching(["D1,D2", "D2,D3"])
    asked(agent_of(model), "go")
    first, second = [m.content for m in model.prompts[-1] if isinstance(m, ToolMessage)]
    assert names_in(first) == {"D1", "D2"}
    assert names_in(second) == {"D3"}
    assert second.startswith("See [Doc 2] above.\n\n")


def test_two_threads_are_independent():  # D2
    model = searching("D1,D2")
    agent = agent_of(model, checkpointer=InMemorySaver())
    asked(agent, "go", "one")
    model.answer = searching("D1,D2").answer
    asked(agent, "go", "two")
    assert chatml(model.prompts[1]) == chatml(model.prompts[3])


def test_after_clearing_middleware_no_hint_dangles():  # D3
    clearing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=150, keep=1)])
    model = searching("D1,D2", "D2,D1,D3", "D3,D1")
    asked(agent_of(model, clearing), "go")
    results = [m.content for m in model.prompts[-1] if isinstance(m, ToolMessage)]
    assert results[:2] == ["[cleared]", "[cleared]"]
    assert names_in(results[2]) == {"D3", "D1"}
    assert "See [Doc" not in results[2]


def test_after_summarising_middleware_no_hint_dangles():  # D3
    summary = Recorder(answer=lambda messages: AIMessage("They spoke of D1."))
    summarising = SummarizationMiddleware(model=summary, trigger=("messages", 4), keep=("messages", 2))
    model = searching("D1,D2", "D2,D1,D3", "D1")
    asked(agent_of(model, summarising), "go")
    assert summary.prompts
    for prompt in model.prompts:
        text = chatml(prompt)
        for hint in ("See [Doc 1]", "See [Doc 2]", "See [Doc 3]"):
            label = hint.removeprefix("See ")
            assert hint not in text or f"{label}\n===" in text
    assert "D1" in names_in(chatml(model.prompts[-1]))


def test_redacted_text_does_not_come_back_from_the_artifact():
    pii = PIIMiddleware("email", strategy="redact", apply_to_tool_results=True)
    secret = Document(id="s", page_content="Write to ann@example.com about the bill. " * 4)
    model = searching("D1")
    retriever = Lists()
    object.__setattr__(retriever, "_get_relevant_documents", lambda query, *, run_manager: [secret])
    asked(agent_of(model, pii, retriever=retriever), "go")
    final = chatml(model.prompts[-1])
    assert "[REDACTED_EMAIL]" in final
    assert "ann@example.com" not in final


def test_behind_the_swap_in_retriever_relevance_order_is_kept():
    engine = ReuseEngine()
    ContextPilotRetriever(base_retriever=Lists(), engine=engine).invoke("D1,D2,D3")
    model = searching("D3,D1,D2")
    asked(agent_of(model, retriever=ContextPilotRetriever(base_retriever=Lists(), engine=engine)), "go")
    (shown,) = [m for m in model.prompts[-1] if isinstance(m, ToolMessage)]
    assert [d.id for d in shown.artifact] == ["id-D1", "id-D2", "id-D3"]
    assert [block.body for block in items(shown.content)] == [text_of(n) for n in ("D3", "D1", "D2")]


def test_the_session_of_the_thread_reaches_the_tools_retriever():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    asked(agent_of(searching("D1,D2"), retriever=retriever, checkpointer=InMemorySaver()), "go", "T9")
    assert retriever.orders.last("default", "T9")
    assert len(retriever.orders) == 1


def test_200_items_of_20_threads_at_once_are_those_of_a_sequential_run():
    dice = random.Random(11)
    names = [f"D{n}" for n in range(1, 12)]
    steps = [[",".join(dice.sample(names, 4)) for _ in range(20)] for _ in range(10)]

    def answer(messages):
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return AIMessage("done")
        return AIMessage(
            "", tool_calls=[{"name": "search", "args": {"query": last.content}, "id": f"c{len(messages)}"}]
        )

    def run_all(at_once):
        model = Recorder(answer=answer)
        agent = agent_of(model, checkpointer=InMemorySaver())
        for step in steps:
            inputs = [{"messages": [HumanMessage(each)]} for each in step]
            configs = [{"configurable": {"thread_id": f"t{n}"}} for n in range(20)]
            if at_once:
                asyncio.run(agent.abatch(inputs, configs))
            else:
                for each, config in zip(inputs, configs, strict=True):
                    agent.invoke(each, config)
        return sorted(chatml(prompt) for prompt in model.prompts)

    assert run_all(True) == run_all(False)


# --- the tool of LangChain's documentation ---------------------------------------------------------------------------


@tool(response_format="content_and_artifact")
def search(query: str):
    """Search the documents, as LangChain's documentation on RAG agents has it."""
    retrieved_docs = Lists().invoke(query)
    serialized = "\n\n".join(f"Source: {doc.metadata}\nContent: {doc.page_content}" for doc in retrieved_docs)
    return serialized, retrieved_docs


def plain_and_ours(turns, how="invoke"):
    """The last prompts of both agents after these turns, and the state of ours."""
    models = [searching(), searching()]
    plain = create_agent(models[0], tools=[search], checkpointer=InMemorySaver())
    ours = create_agent(models[1], tools=[search], middleware=[ContextPilotMiddleware()], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    for number, names in enumerate(turns):
        given = {"messages": [HumanMessage(f"question {number}")]}
        for agent, model in ((plain, models[0]), (ours, models[1])):
            model.answer = searching(names).answer
            if how == "stream":
                list(agent.stream(given, config, stream_mode="updates"))
            elif how == "ainvoke":
                asyncio.run(agent.ainvoke(given, config))
            else:
                agent.invoke(given, config)
    return models[0].prompts, models[1].prompts, ours.get_state(config).values["messages"]


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream"])
def test_the_usual_tool_over_three_turns(how):
    theirs, ours, state = plain_and_ours(["D1,D2", "D2,D3", "D3,D1,D4"], how)
    assert extending(ours)
    shown = [message.content for message in ours[-1] if isinstance(message, ToolMessage)]
    before = [message.content for message in theirs[-1] if isinstance(message, ToolMessage)]
    for name in ("D1", "D2", "D3", "D4"):
        document = f"Source: {{'source': '{name}.md'}}\nContent: {text_of(name)}"
        assert document in "".join(before)
        assert "".join(shown).count(document) == 1
    assert shown[2].startswith("See [Doc 3] above.\n\nSee [Doc 1] above.\n\n[Doc 4]\n===\nSource:")
    assert [m.content for m in state if isinstance(m, ToolMessage)] == before, "the state keeps them whole"
    cited = documents_at(state[-1].response_metadata[PLACES], state)
    assert {label: (found.id, found.metadata) for label, found in cited.items()} == {
        n: (f"id-D{n}", {"source": f"D{n}.md"}) for n in (1, 2, 3, 4)
    }
    assert ContextPilotMiddleware().sources(state) == cited


def test_what_a_model_is_shown_is_known_before_it_answers():
    question, call, found, answer = asked(agent_of(searching("D1,D2")), "go")["messages"]
    assert {n: each.id for n, each in ContextPilotMiddleware().sources([question, call, found]).items()} == {
        1: "id-D1",
        2: "id-D2",
    }
    assert PLACES in answer.response_metadata and PLACES not in call.response_metadata


# --- results that stay as they are -----------------------------------------------------------------------------------


@tool(response_format="content_and_artifact")
def as_json(query: str):
    """Search, and answer in JSON."""
    found = Lists().invoke(query)
    return json.dumps([{"text": each.page_content} for each in found]), found


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (create_retriever_tool(Lists(), "search", "Searches."), "they bring no documents as their artifact"),
        (as_json, "the texts of the documents in their artifact do not stand in their content"),
    ],
    ids=["plain retriever tool", "JSON"],
)
def test_a_result_that_cannot_be_taken_apart_stays_and_the_log_says_so_once(made, reason, caplog):
    made = made.model_copy(update={"name": "search"})
    model, middleware = searching("D1,D2", "D2,D1", "D1"), ContextPilotMiddleware()
    with caplog.at_level(logging.INFO, logger="contextpilot_integrations"):
        create_agent(model, tools=[made], middleware=[middleware]).invoke({"messages": [HumanMessage("go")]})
    results = [message for message in model.prompts[-1] if isinstance(message, ToolMessage)]
    for message, query in zip(results, ("D1,D2", "D2,D1", "D1"), strict=True):
        assert message.content == made.invoke({"query": query})
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert reason in record.message
    assert "Fact" not in record.message


def test_tools_that_retrieve_nothing_are_passed_over_in_silence(caplog):
    @tool("search")
    def count(query: str) -> str:
        """Count."""
        return str(len(query))

    with caplog.at_level(logging.DEBUG, logger="contextpilot_integrations"):
        agent = create_agent(searching("D1"), tools=[count], middleware=[ContextPilotMiddleware()])
        agent.invoke({"messages": [HumanMessage("go")]})
    assert not caplog.records


def test_a_request_without_results_is_passed_on_as_it_is():
    model = Recorder()
    create_agent(model, middleware=[ContextPilotMiddleware()]).invoke({"messages": [HumanMessage("hello")]})
    assert contents(model.prompts[0]) == ["hello"]


def test_results_are_rendered_in_a_request_of_its_own():
    request = ModelRequest(model=Recorder(), messages=[result("D1"), result("D1", call="d")])
    seen = []
    ContextPilotMiddleware().wrap_model_call(request, seen.append)
    assert contents(seen[0].messages)[1] == "See [Doc 1] above."
    assert contents(request.messages) == [text_of("D1")] * 2


def test_config_or_engine():
    assert ContextPilotMiddleware(engine=ReuseEngine(EngineConfig(hint="Look at {label}.")))._rendered._config.hint
    with pytest.raises(ConfigError, match="config and engine are both given"):
        ContextPilotMiddleware(EngineConfig(), engine=ReuseEngine())
