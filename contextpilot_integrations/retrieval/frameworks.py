"""An index as a retriever of a framework; each function imports its own framework, and only when called."""

from typing import TYPE_CHECKING

from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.documents import Index

if TYPE_CHECKING:
    from contextpilot_integrations.retrieval.langchain_retriever import IndexRetriever
    from contextpilot_integrations.retrieval.llama_index_retriever import IndexNodeRetriever


def langchain_retriever(index: Index, k: int) -> "IndexRetriever":
    """Return a LangChain retriever. Raises `MissingExtraError` without ``langchain-core``."""
    load("langchain_core", extra="langchain")
    from contextpilot_integrations.retrieval.langchain_retriever import IndexRetriever

    return IndexRetriever(index=index, k=k)


def llama_index_retriever(index: Index, k: int) -> "IndexNodeRetriever":
    """Return a LlamaIndex retriever. Raises `MissingExtraError` without ``llama-index-core``."""
    load("llama_index.core", extra="llama-index")
    from contextpilot_integrations.retrieval.llama_index_retriever import IndexNodeRetriever

    return IndexNodeRetriever(index, k=k)
