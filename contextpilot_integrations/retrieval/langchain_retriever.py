"""An index as a LangChain retriever; imports ``langchain-core`` alone."""

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from contextpilot_integrations.retrieval.documents import own_copy
from contextpilot_integrations.retrieval.index import Index


class IndexRetriever(BaseRetriever):
    """Returns new documents in every call, best first; no score in the metadata, where it could reach the prompt."""

    index: Any
    """A `FaissIndex`, a `Bm25Index`, or anything with ``entries`` and ``search``."""
    k: int = Field(default=4, ge=1)
    """How many documents to return; also an argument of a call."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        index: Index = self.index
        return [
            Document(
                page_content=hit.block.text,
                id=None if hit.block.id is None else str(hit.block.id),
                metadata=own_copy(hit.block.metadata or {}),
            )
            for hit in index.search(query, self.k if k is None else k)
        ]
