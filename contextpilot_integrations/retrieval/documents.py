"""The caller's documents, of whatever kind, as the entries of an index, and what a search returns of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contextpilot_core import ContextBlock, RequestError, RequestTypeError
from contextpilot_core.checks import whole_number

NODE_FIELDS = (
    "excluded_embed_metadata_keys",
    "excluded_llm_metadata_keys",
    "metadata_separator",
    "metadata_template",
    "text_template",
)
"""What a LlamaIndex node says about how it is shown; kept, as the prompt depends on it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A document of an index; ``node``: what a LlamaIndex node has besides (`NODE_FIELDS`, ``ref_doc_id``)."""

    block: ContextBlock
    node: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A document that was found: its position in the index, its score (more is better) and its block."""

    position: int
    score: float
    block: ContextBlock


def as_entries(documents: Iterable[Any]) -> tuple[Entry, ...]:
    """Return texts, `ContextBlock`, LangChain documents or LlamaIndex nodes (with or without score) as entries.

    They are told by their attributes, so that no framework is imported. Raises `RequestTypeError` for others.
    """
    if isinstance(documents, (str, bytes)):
        raise RequestTypeError("documents is one text; give a list of documents")
    if not isinstance(documents, Iterable):
        raise RequestTypeError(f"documents is a {type(documents).__name__}; give a list of documents")
    return tuple(_entry(document, position) for position, document in enumerate(documents))


def own_copy(value: Any) -> Any:
    """Return a value in new dicts and lists, which a caller may change; what else it holds may not be copyable."""
    if isinstance(value, Mapping):
        return {key: own_copy(item) for key, item in value.items()}
    return [own_copy(item) for item in value] if isinstance(value, list) else value


def _entry(document: Any, position: int) -> Entry:
    if isinstance(document, str):
        return Entry(block=ContextBlock(text=document))
    if isinstance(document, ContextBlock):
        return Entry(block=document)
    if isinstance(getattr(document, "page_content", None), str):
        metadata = document.metadata or {}
        return Entry(block=_block(document.page_content, getattr(document, "id", None), metadata))
    node = getattr(document, "node", document)
    if callable(getattr(node, "get_content", None)) and hasattr(node, "node_id"):
        extra = {name: getattr(node, name) for name in (*NODE_FIELDS, "ref_doc_id") if getattr(node, name, None)}
        return Entry(block=_block(node.get_content(), node.node_id, node.metadata), node=extra)
    raise RequestTypeError(
        f"documents[{position}] is a {type(document).__name__}; give a text, a ContextBlock, a LangChain Document or "
        "a LlamaIndex node"
    )


def _block(text: str, identity: Any, metadata: Mapping[str, Any]) -> ContextBlock:
    title = metadata.get("title")
    return ContextBlock(text=text, id=identity, title=title if isinstance(title, str) else None, metadata=metadata)


def check_search(query: object, k: object) -> None:
    """Raise unless ``query`` is a str (`RequestTypeError`) and ``k`` a whole number of at least 1 (`RequestError`)."""
    if not isinstance(query, str):
        raise RequestTypeError(f"query is a {type(query).__name__}; give a text")
    whole_number("k", k, "give how many documents to return", error=RequestError)
