"""The same order for places where no retriever fits: a document compressor, and a step of a chain."""

from collections.abc import Sequence
from types import NoneType
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from pydantic import ConfigDict, Field

from contextpilot_core import ReuseEngine, WindowScheduler
from contextpilot_core.checks import MOST, kind_of, whole_number
from contextpilot_integrations.langchain.documents import arranged, arranged_in_turn
from contextpilot_integrations.langchain.sessions import session_of
from contextpilot_integrations.reorder import OrderMemory
from contextpilot_integrations.serving.chat import check_parts


class ContextPilotCompressor(BaseDocumentCompressor):
    """For ``ContextualCompressionRetriever`` and ``DocumentCompressorPipeline``, there the last; cuts nothing away.

    LangChain gives compressors no config: the session is found in the config around the call (not under ``batch``),
    in ``contextpilot_integrations.session`` or in the field. Where that is not enough, use `ContextPilotRetriever`
    or `reorder_documents`. Fields as there.
    """

    engine: ReuseEngine = Field(default_factory=ReuseEngine)
    k: int | None = Field(default=None, ge=1, le=MOST, strict=True)
    session_id: str | None = None
    namespace: str = "default"
    scheduler: WindowScheduler | None = None
    orders: OrderMemory = Field(default_factory=OrderMemory, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return copies of the documents in the engine's order, each text once."""
        return arranged(self.engine, documents, **self._options(callbacks))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the same as `compress_documents`; with a ``scheduler``, when the call's turn has come."""
        return await arranged_in_turn(self.engine, self.scheduler, documents, **self._options(callbacks))

    def _options(self, callbacks: Callbacks) -> dict[str, Any]:
        """Return the options of `arranged` for one call."""
        metadata = getattr(callbacks, "metadata", None)
        return {
            "k": self.k,
            "session_id": session_of(ensure_config(), metadata=metadata, fallback=self.session_id),
            "namespace": self.namespace,
            "orders": self.orders,
        }


def reorder_documents(
    engine: ReuseEngine,
    *,
    k: int | None = None,
    session_id: str | None = None,
    namespace: str = "default",
    scheduler: WindowScheduler | None = None,
) -> Runnable[Sequence[Document], list[Document]]:
    """Return a step that takes documents, best first, and returns copies in the engine's order, each text once.

        (lambda x: x["input"]) | retriever | reorder_documents(engine)

    It sees the config, and so the session, of every item of a batch. Options as the fields of `ContextPilotRetriever`.

    Raises:
        ConfigError: one breaks its rule.
    """
    check_parts(session_id=session_id, namespace=namespace)
    kind_of("engine", engine, ReuseEngine, "a ReuseEngine")
    kind_of("scheduler", scheduler, (WindowScheduler, NoneType), "a WindowScheduler of the same engine, or None")
    if k is not None:
        whole_number("k", k, "give how many documents to keep, or None for all")
    orders = OrderMemory()

    def options(config: RunnableConfig) -> dict[str, Any]:
        session = session_of(config, fallback=session_id)
        return {"k": k, "session_id": session, "namespace": namespace, "orders": orders}

    def reorder(documents: Sequence[Document], config: RunnableConfig) -> list[Document]:
        return arranged(engine, documents, **options(config))

    async def areorder(documents: Sequence[Document], config: RunnableConfig) -> list[Document]:
        return await arranged_in_turn(engine, scheduler, documents, **options(config))

    return RunnableLambda(reorder, afunc=areorder, name="reorder_documents")
