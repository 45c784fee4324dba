"""LlamaIndex nodes as blocks, and back: copies only, nobody's node is changed."""

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, Node, NodeWithScore

from contextpilot_core import ContextBlock
from contextpilot_integrations.reorder import PLACE, RANK, SOURCES, Arrangement, relevance_order, without_own


def identity_block(item: NodeWithScore) -> ContextBlock:
    """Return a node by what tells it from others: the text that a language model gets to see, metadata included.

    A node that shows more than text, or no text, is known by its id as well.
    """
    text = llm_text(item)
    if not text.strip() or _shows_media(item.node):
        text = f"{text}\n{item.node.node_id}"
    metadata = item.node.metadata
    title = metadata.get("title", metadata.get("file_name"))
    return ContextBlock(
        text=text, id=item.node.node_id, title=title if isinstance(title, str) else None, metadata=metadata
    )


def context_blocks(nodes: Sequence[NodeWithScore]) -> tuple[ContextBlock, ...]:
    """Return the nodes that have a text as blocks, best first, also when they come from a hook of ours."""
    shown = [item for item in nodes if llm_text(item).strip()]
    best_first = relevance_order([item.node.metadata for item in shown])
    return tuple(ContextBlock(text=llm_text(shown[p]), id=shown[p].node.node_id) for p in best_first)


def arranged(nodes: Sequence[NodeWithScore], arrangement: Arrangement) -> list[NodeWithScore]:
    """Return copies of the nodes in their new order, each with its rank and place.

    Of nodes with the same text the first stays; it takes over a score if it has none, and names all of them.
    """
    result = []
    for place, (position, rank) in enumerate(zip(arrangement.order, arrangement.ranks, strict=True)):
        alike = [nodes[p] for p in (position, *arrangement.repeats.get(position, ()))]
        sources = [source for item in alike for source in _sources(item.node)]
        own = {RANK: rank, PLACE: place, **({SOURCES: sources} if len(sources) > 1 else {})}
        node = _noted(alike[0].node, own)
        score = next((item.score for item in alike if item.score is not None), None)
        result.append(alike[0].model_copy(update={"node": node, "score": score}))
    return result


def llm_text(item: NodeWithScore) -> str:
    """Return the text that a language model gets to see of a node."""
    return item.node.get_content(MetadataMode.LLM)


def _noted(node: BaseNode, notes: dict[str, Any]) -> BaseNode:
    """Return a copy with metadata that neither a language model nor an embedding model gets to see.

    Everything else is the caller's: metadata may hold what cannot be copied, and embeddings are large.
    """
    hidden = {
        name: [*keys, *[key for key in notes if key not in keys]]
        for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")
        for keys in (getattr(node, name),)
    }
    return node.model_copy(
        update={
            "metadata": {**without_own(node.metadata), **notes},
            "relationships": dict(node.relationships),
            **hidden,
        }
    )


def _sources(node: BaseNode) -> list[Any]:
    known = node.metadata.get(SOURCES)
    return known if isinstance(known, list) else [{"id": node.node_id, "metadata": without_own(node.metadata)}]


def _shows_media(node: BaseNode) -> bool:
    if isinstance(node, Node):
        return any((node.image_resource, node.audio_resource, node.video_resource))
    return isinstance(node, ImageNode)
