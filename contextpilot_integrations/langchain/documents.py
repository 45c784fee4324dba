"""LangChain documents to blocks of the engine, and back as copies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import BasePromptTemplate, format_document

from contextpilot_core import ConfigError, ContextBlock, ReuseEngine, Source, WindowScheduler
from contextpilot_core.checks import same
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


@dataclass(frozen=True, kw_only=True)
class DocumentBlock(ContextBlock):
    """A document that goes into a prompt, with the document itself: so that whoever cites it gets it back."""

    document: Document | None = field(default=None, compare=False, repr=False)


def as_block(document: Document, prompt: BasePromptTemplate[str] | None = None) -> DocumentBlock:
    """Return a document as the engine sees it; its identity is the text alone, or what ``prompt`` makes of it.

    Raises:
        ValueError: its metadata lack a variable of the prompt.
    """
    title = document.metadata.get("title")
    return DocumentBlock(
        text=shown_text(document, prompt),
        id=document.id,
        title=title if isinstance(title, str) else None,
        metadata=document.metadata,
        document=document,
    )


def shown_text(document: Document, prompt: BasePromptTemplate[str] | None) -> str:
    """Return what a model is shown of a document. Raises `ValueError`, as `as_block`."""
    return document.page_content if prompt is None else str(format_document(document, prompt))


def document_of(source: Source) -> Document:
    """Return the document that a label stands for, as in `one_source`.

    Of a question that another process asked, id and metadata are known: its document has the text that the model saw.
    """
    return one_source(
        [
            block.document
            if isinstance(block, DocumentBlock) and block.document is not None
            else Document(
                page_content=block.text,
                id=None if block.id is None else str(block.id),
                metadata={**({"title": block.title} if block.title else {}), **(block.metadata or {})},
            )
            for block in source.blocks
        ]
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
        if not any(same(source, other) for other in sources):
            sources.append(source)
    noted = {SOURCES: sources} if len(sources) > 1 else {}
    return first.model_copy(update={"metadata": {**without_own(first.metadata), **noted}})


def _sources(document: Document) -> list[Mapping[str, Any]]:
    """Return where a document comes from: what an earlier hook noted, or the document itself."""
    noted = document.metadata.get(SOURCES)
    if isinstance(noted, list) and noted:
        return noted
    return [{"id": document.id, "metadata": without_own(document.metadata)}]
