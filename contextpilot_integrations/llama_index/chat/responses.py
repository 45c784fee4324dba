"""The answers of the chat engine, with what their labels stand for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse
from llama_index.core.schema import NodeWithScore

NodesByLabel = Mapping[int, tuple[NodeWithScore, ...]]
"""Number of a ``[Doc n]`` -> all nodes that had its text, the one that was sent first."""


@dataclass
class ContextPilotResponse(AgentChatResponse):
    """An answer. ``source_nodes`` are what was retrieved, in that order, as with the stock engines.

    ``nodes_by_label``: what every ``[Doc n]`` of the prompt stands for, of this turn and of all that it still shows.
    ``citations(response.response, response.nodes_by_label)`` gives what the answer cites.
    """

    nodes_by_label: NodesByLabel = field(default_factory=dict)


@dataclass
class ContextPilotStreamingResponse(StreamingAgentChatResponse):
    """An answer that is being streamed, as `ContextPilotResponse`; its nodes are there before the first token."""

    nodes_by_label: NodesByLabel = field(default_factory=dict)
