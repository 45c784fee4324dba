"""A retriever as a tool whose results the middleware can work with."""

from types import NoneType

from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool
from langchain_core.tools.retriever import RetrieverInput
from langchain_core.tools.structured import StructuredTool

from contextpilot_core.checks import able, kind_of


def create_contextpilot_retriever_tool(
    retriever: BaseRetriever,
    name: str,
    description: str,
    *,
    document_prompt: BasePromptTemplate[str] | None = None,
    document_separator: str = "\n\n",
) -> StructuredTool:
    """Return LangChain's retriever tool with the documents as artifact, where `ContextPilotMiddleware` finds them.

    Without that middleware the model sees what LangChain's tool shows it: the texts by ``document_prompt``, joined by
    ``document_separator``.

    Raises:
        ConfigError: an argument is of another type.
    """
    able("retriever", retriever, ("invoke", "ainvoke"), "a retriever of LangChain")
    kind_of("document_prompt", document_prompt, (BasePromptTemplate, NoneType), "a PromptTemplate, or None")
    for given, value in (("name", name), ("description", description), ("document_separator", document_separator)):
        kind_of(given, value, str, "a str")
    return create_retriever_tool(
        retriever,
        name,
        description,
        document_prompt=document_prompt,
        document_separator=document_separator,
        response_format="content_and_artifact",
    )


def is_retriever_tool(tool: object) -> bool:
    """Tell whether LangChain's ``create_retriever_tool`` made a tool, with documents as its artifact or without."""
    return isinstance(tool, StructuredTool) and tool.args_schema is RetrieverInput
