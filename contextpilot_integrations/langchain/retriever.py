"""A retriever around a retriever: the same documents, in an order that the prefix cache knows."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import patch_config, run_in_executor
from langchain_core.runnables.utils import ConfigurableFieldSpec
from pydantic import ConfigDict, Field

from contextpilot_core import ReuseEngine, WindowScheduler
from contextpilot_core.checks import MOST
from contextpilot_integrations.langchain.documents import arranged, arranged_in_turn
from contextpilot_integrations.langchain.sessions import session_of
from contextpilot_integrations.reorder import OrderMemory

_DEFAULT_ASYNC = BaseRetriever._aget_relevant_documents
_OWN = ("session_id", "k", "verbose", "_config")


class ContextPilotRetriever(BaseRetriever):
    """Returns the documents of ``base_retriever`` as copies in the engine's order, each text once.

    Place it last: after rerankers and filters. With a session, documents kept from its last call come first (sticky
    order). The session of a call is, in this order: ``invoke(..., session_id=...)``; ``session_id``, ``thread_id`` or
    ``conversation_id`` in the config's ``configurable`` or metadata; ``contextpilot_integrations.session``; the field.
    """

    base_retriever: RetrieverLike
    """Where the documents come from, best first; it sees the config and the other arguments of a call."""
    engine: ReuseEngine = Field(default_factory=ReuseEngine)
    """Plans the order; all pipelines in front of one model server should share it."""
    k: int | None = Field(default=None, ge=1, le=MOST, strict=True)
    """How many different documents to keep, the best ones; also an argument of a call."""
    session_id: str | None = None
    """The session of calls that name none."""
    namespace: str = "default"
    """Orders are shared inside it only."""
    scheduler: WindowScheduler | None = None
    """Of the same engine: asynchronous calls that come together are planned together, and go on in the order in which
    their documents should be sent (items of a chain's ``abatch`` in input order: it finishes each step for all of them
    first). None: each goes on at once."""
    orders: OrderMemory = Field(default_factory=OrderMemory, repr=False)
    """The last order of each session."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What can be configured: all that the inner retriever offers."""
        return self.base_retriever.config_specs

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Retrieve and order. ``session_id`` and ``k`` may be given, the inner retriever gets the other arguments."""
        # The base class hides the config, in which the session stands, from the method that does the work.
        config = ensure_config(config)
        return super().invoke(input, config, **kwargs, _config=config)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Retrieve and order; as `invoke`."""
        config = ensure_config(config)
        return await super().ainvoke(input, config, **kwargs, _config=config)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        config = patch_config(_config(kwargs), callbacks=run_manager.get_child())
        documents = self.base_retriever.invoke(query, config, **self._forwarded(kwargs))
        return arranged(self.engine, documents, **self._options(kwargs, run_manager.metadata))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        forwarded, inner = self._forwarded(kwargs), self.base_retriever
        if forwarded and getattr(type(inner), "_aget_relevant_documents", None) is _DEFAULT_ASYNC:
            # LangChain's own way from async to sync refuses arguments.
            config = patch_config(_config(kwargs), callbacks=run_manager.get_sync().get_child())
            documents = await run_in_executor(config, inner.invoke, query, config, **forwarded)
        else:
            config = patch_config(_config(kwargs), callbacks=run_manager.get_child())
            documents = await inner.ainvoke(query, config, **forwarded)
        options = self._options(kwargs, run_manager.metadata)
        return await arranged_in_turn(self.engine, self.scheduler, documents, **options)

    def _forwarded(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inner retriever's arguments; it should find as many documents as are asked of this one."""
        forwarded = {name: value for name, value in kwargs.items() if name not in _OWN}
        if kwargs.get("k") is not None and _takes_k(self.base_retriever):
            forwarded["k"] = kwargs["k"]
        return forwarded

    def _options(self, kwargs: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `arranged` for one call."""
        k = kwargs.get("k")
        return {
            "k": self.k if k is None else k,
            "session_id": session_of(
                _config(kwargs), explicit=kwargs.get("session_id"), metadata=metadata, fallback=self.session_id
            ),
            "namespace": self.namespace,
            "orders": self.orders,
        }


def _takes_k(retriever: RetrieverLike) -> bool:
    if not isinstance(retriever, BaseRetriever):
        return False
    parameters = signature(retriever._get_relevant_documents).parameters
    return "k" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _config(kwargs: Mapping[str, Any]) -> RunnableConfig:
    """Return the config of the call, also for those who call the inner method directly."""
    config: RunnableConfig | None = kwargs.get("_config")
    return ensure_config() if config is None else config
