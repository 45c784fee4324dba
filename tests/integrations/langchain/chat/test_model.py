"""LangChain pipelines against the embedded llama.cpp: cached tokens as the server reports them, times never."""

import pytest

from contextpilot_core import ReuseEngine
from contextpilot_integrations.serving.local.engine import LocalEngine
from tests.conftest import require, require_local_model

require("langchain_core")
require("langchain_classic")
require("langchain")
require("langchain_openai")
require_local_model()

from langchain.agents import create_agent  # noqa: E402
from langchain_classic.chains import create_retrieval_chain  # noqa: E402
from langchain_classic.chains.combine_documents import create_stuff_documents_chain  # noqa: E402
from langchain_core.callbacks import UsageMetadataCallbackHandler  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotMiddleware,
    ContextPilotRetriever,
    create_contextpilot_chat,
)
from tests.integrations.langchain_fakes import Lists, query, result  # noqa: E402

SYSTEM = ChatPromptTemplate.from_messages([("system", "Answer from the context:\n\n{context}"), ("human", "{input}")])


@pytest.fixture(scope="module")
def server():
    with LocalEngine(threads=1) as running:
        yield running


@pytest.fixture
def model(server):
    server.clear()
    return ChatOpenAI(
        base_url=server.base_url, model=server.model, api_key="-", max_tokens=4, temperature=0, stream_usage=True
    )


def usage(message):
    return message.usage_metadata["input_tokens"], message.usage_metadata["input_token_details"]["cache_read"]


def cached_in_chain(retriever, model):
    """Cached tokens of the second of two queries."""
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(model, SYSTEM))
    reports = []
    for name in "AB":
        handler = UsageMetadataCallbackHandler()
        chain.invoke({"input": query(name)}, {"callbacks": [handler]})
        reports.extend(handler.usage_metadata.values())
    return reports[1]["input_token_details"]["cache_read"]


def test_a_retrieval_chain_hits_the_cache(server, model):
    with_us = cached_in_chain(ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine()), model)
    server.clear()
    without = cached_in_chain(Lists(), model)
    assert without < 40
    assert with_us > 200  # three documents


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
def test_each_turn_of_the_chat_finds_the_last_one_in_the_cache(model, streamed):
    chat = create_contextpilot_chat(Lists(), model, instructions="Be brief.", session_id="u")

    def ask(question):
        if not streamed:
            return usage(chat.invoke(question))
        whole = None
        for chunk in chat.stream(question):
            whole = chunk if whole is None else whole + chunk
        return usage(whole)

    prompt, cached = ask("D1,D2,D3 what?")
    assert cached < 20
    for question in ("D2,D1 and?", "D4,D3 and?"):
        again, cached = ask(question)
        assert cached >= prompt - 2  # the template may render the turn of the answer in other tokens
        prompt = again
    assert len(chat.history("u")) == 6


def test_an_agents_results_are_cached_and_sent_once(model):
    agent = create_agent(model, middleware=[ContextPilotMiddleware()], system_prompt="Be brief.")

    def history(*results):
        messages = [HumanMessage("What is known?")]
        for number, found in enumerate(results):
            call = {"name": "search", "args": {"query": str(number)}, "id": f"c{number}"}
            messages += [
                AIMessage("I search.", tool_calls=[call]),
                found.model_copy(update={"tool_call_id": f"c{number}"}),
            ]
        return {"messages": messages}

    first, _ = usage(agent.invoke(history(result("D1", "D2", "D3")))["messages"][-1])
    second, cached = usage(agent.invoke(history(result("D1", "D2", "D3"), result("D2", "D3", "D1")))["messages"][-1])
    assert cached >= first - 8
    assert second - first < 100  # hints instead of three documents
