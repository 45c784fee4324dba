"""Our node postprocessor, and nodes for it. Needs llama-index-core."""

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore

from contextpilot_integrations.llama_index import ContextPilotPostprocessor
from tests.integrations.llama_index_fakes import TABLE, Recorder, TableRetriever, node


def nodes(*found):
    return [item if isinstance(item, NodeWithScore) else node(item, (9 - rank) / 10) for rank, item in enumerate(found)]


def warm(**options):
    """A hook that has seen the first list of the fixture."""
    hook = ContextPilotPostprocessor(**options)
    hook.postprocess_nodes(nodes(*TABLE["qA"]))
    return hook


def query_engine(hook, llm=None, table=TABLE, **options):
    synthesizer = get_response_synthesizer(llm=llm or Recorder(), **options)
    return RetrieverQueryEngine(TableRetriever(table), synthesizer, node_postprocessors=[hook])


def shape(found):
    return [(item.node.get_content(), item.score, item.node.metadata) for item in found]
