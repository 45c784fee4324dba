"""The middleware in real agents: cases S14, D2, D3, checkpoints, clearing, summarising and redacting middleware."""

import asyncio
import random

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from tests.conftest import require
from tests.parsing import parse_context

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
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotMiddleware,
    ContextPilotRetriever,
    create_contextpilot_retriever_tool,
)
from tests.integrations.langchain.agent.results import contents, result  # noqa: E402
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
    assert [block.label for block in parse_context(first)] == [1, 2, 3]
    assert second.startswith("See [Doc 2] above.\nSee [Doc 1] above.\n[Doc 4]\n===\n")
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
    assert second.startswith("See [Doc 2] above.\n")


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
    assert [block.body for block in parse_context(shown.content)] == [text_of(n) for n in ("D3", "D1", "D2")]


def test_the_session_of_the_thread_reaches_the_tools_retriever():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    asked(agent_of(searching("D1,D2"), retriever=retriever, checkpointer=InMemorySaver()), "go", "T9")
    assert set(retriever.orders._orders._values) == {("default", "T9")}


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
