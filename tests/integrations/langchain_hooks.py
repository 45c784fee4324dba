"""Our retriever around retrievers of LangChain, and what it has seen. Needs langchain-core."""

from langchain_core.runnables import RunnableLambda

from contextpilot_core import ReuseEngine
from contextpilot_integrations.langchain import ContextPilotRetriever

THREAD = {"configurable": {"thread_id": "T1"}}


def fixed(*documents):
    return RunnableLambda(lambda query: list(documents))


def wrapped(base, **fields):
    return ContextPilotRetriever(base_retriever=base, engine=fields.pop("engine", ReuseEngine()), **fields)


def ids(documents):
    return [document.id for document in documents]


def sessions(retriever):
    """The sessions that a hook has seen."""
    return {session_id for values in retriever.orders._orders._groups.values() for _, session_id in values}
