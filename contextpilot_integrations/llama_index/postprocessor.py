"""The swap-in hook for LlamaIndex: one more node postprocessor, the last one in the list."""

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from contextpilot_core import ReuseEngine
from contextpilot_integrations.llama_index.nodes import arranged, identity_block
from contextpilot_integrations.llama_index.sessions import find_session
from contextpilot_integrations.reorder import OrderMemory, arrange


class ContextPilotPostprocessor(BaseNodePostprocessor):
    """Orders the nodes of every call so that the prompt shares a prefix with what the model server has cached.

        index.as_query_engine(node_postprocessors=[ContextPilotPostprocessor()])

    Nodes come back as copies: text, scores and ids as they were, nodes with the same text once, the original rank in
    the metadata where no model sees it. Put it last: what comes behind it sees the new order.

    engine: plans; share one between all that send prompts to the same model server.
    session_id, memory: name the conversation, whose documents keep their order from turn to turn. Above them stand
        ``contextpilot_integrations.session`` and ``instrument_tags({"session_id": ...})``.
    namespace: nothing crosses it.

    ``copy.deepcopy`` shares engine, memory and orders. It cannot be pickled. ``to_dict`` leaves them out.
    """

    engine: ReuseEngine = Field(default_factory=ReuseEngine, exclude=True)
    session_id: str | None = None
    memory: Any = Field(default=None, exclude=True)
    namespace: str = "default"
    _orders: OrderMemory = PrivateAttr(default_factory=OrderMemory)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this."""
        return "ContextPilotPostprocessor"

    def forget(self, session_id: str) -> bool:
        """Forget the order of a session: LlamaIndex's ``reset()`` does not reach here. Returns whether it was known."""
        return self._orders.forget(session_id, namespace=self.namespace)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        arrangement = arrange(
            self.engine,
            [identity_block(item) for item in nodes],
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
