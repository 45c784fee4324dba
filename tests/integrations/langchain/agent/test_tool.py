"""The retriever as a tool."""

import asyncio

import pytest

from tests.conftest import require

require("langchain_core")

from langchain_core.prompts import PromptTemplate  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_retriever_tool  # noqa: E402
from tests.integrations.langchain_fakes import Lists, text_of  # noqa: E402


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_tool_returns_content_and_artifact(asynchronous):
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.", document_separator="\n--\n")
    call = {"name": "search", "args": {"query": "D1,D2"}, "id": "1", "type": "tool_call"}
    message = asyncio.run(search.ainvoke(call)) if asynchronous else search.invoke(call)
    assert message.content == text_of("D1") + "\n--\n" + text_of("D2")
    assert [d.id for d in message.artifact] == ["id-D1", "id-D2"]


def test_the_model_sees_what_langchains_tool_would_show_it():
    prompt = PromptTemplate.from_template("{source}: {page_content}")
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.", document_prompt=prompt)
    assert (search.name, search.description) == ("search", "Searches.")
    message = search.invoke({"name": "search", "args": {"query": "D1,D2"}, "id": "1", "type": "tool_call"})
    assert message.content == f"D1.md: {text_of('D1')}\n\nD2.md: {text_of('D2')}"
    assert [found.page_content for found in message.artifact] == [text_of("D1"), text_of("D2")]
