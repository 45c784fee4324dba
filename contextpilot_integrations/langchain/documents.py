"""LangChain documents to blocks of the engine, and back as copies."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from contextpilot_core import ConfigError, ContextBlock, ReuseEngine, WindowScheduler
from contextpilot_integrations.reorder import (
    PLACE,
    RANK,
    SOURCES,
    Arrangement,
    arrange,
    arrange_in_turn,
    relevance_order,
    without_own,
)


def as_block(document: Document) -> ContextBlock:
    """Return a document as the engine sees it; its identity is the text alone."""
    title = document.metadata.get("title")
    return ContextBlock(
        text=document.page_content,
        id=document.id,
        title=title if isinstance(title, str) else None,
        metadata=document.metadata,
    )


def arranged(engine: ReuseEngine, documents: Sequence[Document], **options: Any) -> list[Document]:
    """Return copies of the documents in the order of `arrange`; ids, scores and metadata are kept.

    Each copy has its rank and place in its metadata, and, where others had the same text, all of their sources.
    """
    blocks = [as_block(document) for document in documents]
    return _copies(documents, arrange(engine, blocks, **options))


async def arranged_in_turn(
    engine: ReuseEngine, scheduler: WindowScheduler | None, documents: Sequence[Document], **options: Any
) -> list[Document]:
    """Return what `arranged` returns, at once or, with a ``scheduler``, when the call's turn has come.

    Raises:
        ConfigError: the scheduler has another engine.
    """
    if scheduler is None:
        return arranged(engine, documents, **options)
    if scheduler.engine is not engine:
        raise ConfigError("scheduler plans with another engine; give both: engine=engine, WindowScheduler(engine)")
    blocks = [as_block(document) for document in documents]
    return _copies(documents, await arrange_in_turn(scheduler, blocks, **options))


def _copies(documents: Sequence[Document], arrangement: Arrangement) -> list[Document]:
    copies = []
    for place, (position, rank) in enumerate(zip(arrangement.order, arrangement.ranks, strict=True)):
        document = documents[position]
        metadata = {**document.metadata, RANK: rank, PLACE: place}
        repeats = arrangement.repeats.get(position)
        if repeats:
            metadata[SOURCES] = [source for p in (position, *repeats) for source in _sources(documents[p])]
        copies.append(document.model_copy(update={"metadata": metadata}))
    return copies


def relevance(documents: Sequence[Document]) -> tuple[int, ...]:
    """Return the positions best first, whether or not one of our hooks moved the documents."""
    return relevance_order([document.metadata for document in documents])


def by_relevance(documents: Sequence[Document]) -> list[Document]:
    """Return the documents best first."""
    return [documents[position] for position in relevance(documents)]


def one_source(documents: Sequence[Document]) -> Document:
    """Return the documents that one label stands for as one: the first, and all of their sources where they differ."""
    first = documents[0]
    sources: list[Mapping[str, Any]] = []
    for source in [source for document in documents for source in _sources(document)]:
        if source not in sources:
            sources.append(source)
    noted = {SOURCES: sources} if len(sources) > 1 else {}
    return first.model_copy(update={"metadata": {**without_own(first.metadata), **noted}})


def _sources(document: Document) -> list[Mapping[str, Any]]:
    """Return where a document comes from: what an earlier hook noted, or the document itself."""
    noted = document.metadata.get(SOURCES)
    if isinstance(noted, list) and noted:
        return noted
    return [{"id": document.id, "metadata": without_own(document.metadata)}]
