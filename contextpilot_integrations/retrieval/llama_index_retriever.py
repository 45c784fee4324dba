"""An index as a LlamaIndex retriever; imports ``llama-index-core`` alone."""

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import (
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from contextpilot_core import RequestError
from contextpilot_core.checks import whole_number
from contextpilot_integrations.retrieval.documents import Entry, own_copy
from contextpilot_integrations.retrieval.index import Index


class IndexNodeRetriever(BaseRetriever):
    """Returns new nodes in every call, best first, with their scores.

    Nodes keep their id, what is shown of their metadata, and the document they are from. A document without an id is
    named by its position.
    """

    def __init__(self, index: Index, k: int = 4, callback_manager: CallbackManager | None = None) -> None:
        """Search ``index`` for ``k`` documents. Raises `RequestError` when ``k`` is below 1."""
        super().__init__(callback_manager=callback_manager)
        self._index = index
        self._k = whole_number("k", k, "give how many documents to return", error=RequestError)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, self._k)
        entries = self._index.entries
        return [NodeWithScore(node=_node(entries[hit.position], hit.position), score=hit.score) for hit in hits]


def _node(entry: Entry, position: int) -> TextNode:
    block = entry.block
    fields: dict[str, Any] = own_copy(entry.node)
    source = fields.pop("ref_doc_id", None)
    node = TextNode(
        id_=f"document-{position}" if block.id is None else str(block.id),
        text=block.text,
        metadata=own_copy(block.metadata or {}),
        **fields,
    )
    if source is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return node
