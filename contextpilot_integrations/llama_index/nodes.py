"""LlamaIndex nodes as blocks, and back: copies only, nobody's node is changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, Node, NodeWithScore, TextNode

from contextpilot_core import ContextBlock, Source
from contextpilot_integrations.reorder import PLACE, RANK, SOURCES, Arrangement, relevance_order, without_own


@dataclass(frozen=True, kw_only=True)
class NodeBlock(ContextBlock):
    """A node that goes into a prompt, with the node itself: so that whoever cites it gets it back."""

    node: NodeWithScore | None = field(default=None, compare=False, repr=False)


def identity_block(item: NodeWithScore) -> ContextBlock:
    """Return a node by what tells it from others: the text that a language model gets to see, metadata included.

    A node that shows more than text, or no text, is known by its id as well.
    """
    text = llm_text(item)
    if not text.strip() or _shows_media(item.node):
        text = f"{text}\n{item.node.node_id}"
    return ContextBlock(text=text, id=item.node.node_id, title=_title(item.node), metadata=item.node.metadata)


def context_blocks(nodes: Sequence[NodeWithScore]) -> tuple[NodeBlock, ...]:
    """Return the nodes that have a text as blocks, best first, also when they come from a hook of ours."""
    shown = [item for item in nodes if llm_text(item).strip()]
    best_first = [shown[position] for position in relevance_order([item.node.metadata for item in shown])]
    return tuple(
        NodeBlock(
            text=llm_text(item),
            id=item.node.node_id,
            title=_title(item.node),
            metadata={key: value for key, value in item.node.metadata.items() if key not in (RANK, PLACE)},
            node=item,
        )
        for item in best_first
    )


def in_prompt_order(nodes: Sequence[NodeWithScore], blocks: Sequence[ContextBlock]) -> list[NodeWithScore]:
    """Return the nodes in the order of the prompt's ``blocks``, then those that the prompt does not hold themselves."""
    placed = [block.node for block in blocks if isinstance(block, NodeBlock) and block.node is not None]
    return [*placed, *[item for item in nodes if not any(item is other for other in placed)]]


def nodes_of(source: Source) -> tuple[NodeWithScore, ...]:
    """Return all nodes that had the text of a source, each once, the one that was sent first.

    Of a question that another process asked, and of nodes that a hook merged, id and metadata are known: they come
    as new nodes, with the text that the model saw.
    """
    found: dict[str, NodeWithScore] = {}
    for block in source.blocks:
        metadata = block.metadata or {}
        merged = metadata.get(SOURCES)
        others = merged if isinstance(merged, list) else []
        node = block.node if isinstance(block, NodeBlock) else None
        item = _known_node(block.text, block.id, metadata) if node is None else node
        found.setdefault(item.node.node_id, item)
        for other in others:
            if isinstance(other, Mapping) and isinstance(known := other.get("metadata"), Mapping):
                item = _known_node(block.text, other.get("id"), known)
                found.setdefault(item.node.node_id, item)
    return tuple(found.values())


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


def _known_node(text: str, node_id: Any, metadata: Mapping[str, Any]) -> NodeWithScore:
    """Return a node of what is known of one; its text holds what the model saw of the metadata."""
    hidden = list(metadata)
    node = TextNode(
        id_="" if node_id is None else str(node_id),
        text=text,
        metadata=dict(metadata),
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )
    return NodeWithScore(node=node)


def _title(node: BaseNode) -> str | None:
    title = node.metadata.get("title", node.metadata.get("file_name"))
    return title if isinstance(title, str) else None


def _sources(node: BaseNode) -> list[Any]:
    known = node.metadata.get(SOURCES)
    return known if isinstance(known, list) else [{"id": node.node_id, "metadata": without_own(node.metadata)}]


def _shows_media(node: BaseNode) -> bool:
    if isinstance(node, Node):
        return any((node.image_resource, node.audio_resource, node.video_resource))
    return isinstance(node, ImageNode)
