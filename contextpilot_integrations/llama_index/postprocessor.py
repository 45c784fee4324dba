"""The swap-in hook for LlamaIndex: one more node postprocessor, the last one in the list."""

from collections.abc import Sequence
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from contextpilot_core import ReuseEngine
from contextpilot_integrations.llama_index.nodes import arranged, identity_block, llm_text
from contextpilot_integrations.llama_index.sessions import find_session
from contextpilot_integrations.reorder import RANK, OrderMemory, OrderNotes, arrange


class ContextPilotPostprocessor(BaseNodePostprocessor):
    """Orders the nodes of every call so that the prompt shares a prefix with what the model server has cached.

        index.as_query_engine(node_postprocessors=[ContextPilotPostprocessor()])

    Nodes come back as copies: text, scores and ids as they were, nodes with the same text once, the original rank in
    the metadata where no model sees it. Put it last: what comes behind it sees the new order. The model is told nothing
    of the order, unless a template of yours holds an `order_note`.

    engine: plans; share one between all that send prompts to the same model server.
    session_id, memory: name the conversation, whose documents keep their order from turn to turn. Above them stand
        ``contextpilot_integrations.session`` and ``instrument_tags({"session_id": ...})``.
    namespace: nothing crosses it.

    ``copy.deepcopy`` shares engine, memory, orders and notes. It cannot be pickled. ``to_dict`` leaves them out.
    """

    engine: ReuseEngine = Field(default_factory=ReuseEngine, exclude=True)
    session_id: str | None = None
    memory: Any = Field(default=None, exclude=True)
    namespace: str = "default"
    _orders: OrderMemory = PrivateAttr(default_factory=OrderMemory)
    _notes: OrderNotes = PrivateAttr(default_factory=OrderNotes)

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

    def order_note(self, *, context_str: str | Sequence[str] = "", query_str: str = "", **others: Any) -> str:
        """Return the note that tells the original order of relevance, for a prompt that shows all nodes of a call.

            PromptTemplate("{context_str}{order_note} {query_str}", function_mappings={"order_note": hook.order_note})

        LlamaIndex calls it with the variables of the template. It is "" where there is nothing to tell, and for every
        prompt that shows only some of the nodes, or parts of them: in the response modes "refine" and "accumulate", in
        "compact" and "tree_summarize" where not all nodes fit into one prompt, in a `CitationQueryEngine`.
        """
        context = context_str if isinstance(context_str, str) else "\n".join(context_str)
        return self._notes.note(query_str, context)

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
        given = arranged(nodes, arrangement)
        shown = [item for item in given if llm_text(item).strip()]
        query = "" if query_bundle is None else query_bundle.query_str
        self._notes.keep(query, list(map(llm_text, shown)), [item.node.metadata[RANK] for item in shown])
        return given

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
