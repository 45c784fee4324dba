"""What all indexes are: documents that can be searched, also through a retriever of either framework."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.documents import Entry, Hit

if TYPE_CHECKING:
    from contextpilot_integrations.retrieval.langchain_retriever import IndexRetriever
    from contextpilot_integrations.retrieval.llama_index_retriever import IndexNodeRetriever


class Index(ABC):
    """Owns the entries; a framework is imported only when its retriever is asked for."""

    _entries: tuple[Entry, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The documents, in the order given."""
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @abstractmethod
    def search(self, query: str, k: int = 4) -> list[Hit]:
        """Return the ``k`` best documents, best first; fewer only when there are fewer."""

    def as_langchain_retriever(self, k: int = 4) -> "IndexRetriever":
        """Return a LangChain retriever over this index. Raises `MissingExtraError` without ``langchain-core``."""
        load("langchain_core", extra="langchain")
        from contextpilot_integrations.retrieval.langchain_retriever import IndexRetriever

        return IndexRetriever(index=self, k=k)

    def as_llama_index_retriever(self, k: int = 4) -> "IndexNodeRetriever":
        """Return a LlamaIndex retriever over this index. Raises `MissingExtraError` without ``llama-index-core``."""
        load("llama_index.core", extra="llama-index")
        from contextpilot_integrations.retrieval.llama_index_retriever import IndexNodeRetriever

        return IndexNodeRetriever(self, k=k)
