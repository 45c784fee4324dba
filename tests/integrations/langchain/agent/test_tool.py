"""The retriever as a tool: what it shows, and what it leaves for the middleware."""

import asyncio

import pytest

from tests.conftest import require

require("langchain_core")
require("langchain")
require("langgraph")

from langchain_core.prompts import PromptTemplate  # noqa: E402
from langchain_core.tools import create_retriever_tool, tool  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_retriever_tool  # noqa: E402
from contextpilot_integrations.langchain.agent.results import documents_of, retrieved  # noqa: E402
from contextpilot_integrations.langchain.agent.tool import is_retriever_tool  # noqa: E402
from tests.integrations.langchain_fakes import Lists, text_of  # noqa: E402

CALL = {"name": "search", "args": {"query": "D1,D2"}, "id": "1", "type": "tool_call"}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_tool_returns_content_and_artifact(asynchronous):
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.", document_separator="\n--\n")
    message = asyncio.run(search.ainvoke(CALL)) if asynchronous else search.invoke(CALL)
    assert message.content == text_of("D1") + "\n--\n" + text_of("D2")
    assert [d.id for d in message.artifact] == ["id-D1", "id-D2"]


def test_the_model_is_told_name_description_and_one_query():
    search = create_contextpilot_retriever_tool(Lists(), "find", "Finds things.")
    assert (search.name, search.description, list(search.args)) == ("find", "Finds things.", ["query"])


def test_texts_stand_apart_by_a_blank_line():
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.")
    assert search.invoke(CALL).content == text_of("D1") + "\n\n" + text_of("D2")


def test_a_prompt_for_each_document_is_shown_and_the_documents_stay_whole():
    prompt = PromptTemplate.from_template("{source}: {page_content}")
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.", document_prompt=prompt)
    message = search.invoke(CALL)
    assert message.content == f"D1.md: {text_of('D1')}\n\nD2.md: {text_of('D2')}"
    assert [document.page_content for document in documents_of(message)] == [text_of("D1"), text_of("D2")]


def test_a_prompt_that_hides_the_texts_keeps_them_hidden():
    prompt = PromptTemplate.from_template("{source}")
    search = create_contextpilot_retriever_tool(Lists(), "search", "Searches.", document_prompt=prompt)
    message = search.invoke(CALL)
    assert message.content == "D1.md\n\nD2.md"
    assert retrieved(message) is None


def test_retriever_tools_are_known_whoever_made_them():
    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    assert is_retriever_tool(create_retriever_tool(Lists(), "search", "Searches."))
    assert is_retriever_tool(create_contextpilot_retriever_tool(Lists(), "search", "Searches."))
    assert not is_retriever_tool(search)
    assert not is_retriever_tool({"name": "search"})
