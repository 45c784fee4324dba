"""The swap-in hook for LlamaIndex: one more node postprocessor, the last one in the list."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation.span import active_span_id
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from contextpilot_core import ReuseEngine
from contextpilot_integrations.llama_index.nodes import arranged, identity_block, ranks
from contextpilot_integrations.llama_index.sessions import find_session
from contextpilot_integrations.reorder import OrderMemory, arrange

_CONTEXT_IN_SYSTEM_MESSAGE = "ContextChatEngine."
_caller: ContextVar[str] = ContextVar("contextpilot_llama_index_caller", default="")


class ContextPilotPostprocessor(BaseNodePostprocessor):
    """Orders the nodes of every call so that the prompt shares a prefix with what the model server has cached.

        index.as_query_engine(node_postprocessors=[ContextPilotPostprocessor()])

    Nodes come back as copies: text, scores and ids as they were, nodes with the same text once, the original rank in
    the metadata where no model sees it. When the order is not by relevance, the text of the last node ends in a note
    that says so. Put it last: what comes behind it sees the new order.

    engine: plans; share one between all that send prompts to the same model server.
    note: style of the note. None is the engine's, and no note where the context stands in the system message
        (`ContextChatEngine`, `CondensePlusContextChatEngine`): there, it would cost the reuse of the history.
    session_id, memory: name the conversation, whose documents keep their order from turn to turn. Above them stand
        ``contextpilot_integrations.session`` and ``instrument_tags({"session_id": ...})``.
    namespace: nothing crosses it.

    ``copy.deepcopy`` shares engine, memory and orders. It cannot be pickled. ``to_dict`` leaves them out.
    """

    engine: ReuseEngine = Field(default_factory=ReuseEngine, exclude=True)
    note: Literal["compact", "full", "none"] | None = None
    session_id: str | None = None
    memory: Any = Field(default=None, exclude=True)
    namespace: str = "default"
    _orders: OrderMemory = PrivateAttr(default_factory=OrderMemory)

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_its_name(cls, fields: Any) -> Any:
        """LlamaIndex writes the name of the class among the fields; any other unknown one is refused."""
        return {name: fields[name] for name in fields if name != "class_name"} if isinstance(fields, dict) else fields

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this."""
        return "ContextPilotPostprocessor"

    def forget(self, session_id: str) -> bool:
        """Forget the order of a session: LlamaIndex's ``reset()`` does not reach here. Returns whether it was known."""
        return self._orders.forget(session_id, namespace=self.namespace)

    def postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,
        query_str: str | None = None,
    ) -> list[NodeWithScore]:
        """Order the nodes. The question plays no part."""
        with _noted_caller():
            return super().postprocess_nodes(nodes, query_bundle, query_str)

    async def apostprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,
        query_str: str | None = None,
    ) -> list[NodeWithScore]:
        """Order the nodes, as `postprocess_nodes`; nothing here waits."""
        with _noted_caller():
            return await super().apostprocess_nodes(nodes, query_bundle, query_str)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        note = self.note
        if note is None and _CONTEXT_IN_SYSTEM_MESSAGE in _caller.get():
            note = "none"
        arrangement = arrange(
            self.engine,
            [identity_block(item) for item in nodes],
            ranks=ranks(nodes),
            note=note,
            session_id=find_session(self.session_id, self.memory),
            namespace=self.namespace,
            orders=self._orders,
        )
        return arranged(nodes, arrangement)

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._postprocess_nodes(nodes, query_bundle)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "ContextPilotPostprocessor":
        """Return a copy with the same engine, memory and orders."""
        return self.model_copy()

    def __reduce__(self) -> str:
        """Refuse to be pickled: LlamaIndex would drop the engine silently."""
        raise TypeError(
            "a ContextPilotPostprocessor cannot be pickled: its engine's state would be lost; make one per process"
        )


@contextmanager
def _noted_caller() -> Iterator[None]:
    """Remember the span that calls: inside, the active one is our own."""
    token = _caller.set(active_span_id.get() or "")
    try:
        yield
    finally:
        _caller.reset(token)
