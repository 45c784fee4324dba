"""The retriever around retrievers, on the real LangChain (cases S1, S15)."""

import asyncio
import copy

import pytest

from contextpilot_core import ConfigError, ReuseEngine
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.reorder.ranks import RANK
from contextpilot_integrations.session import session
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from langchain_classic.retrievers import (  # noqa: E402
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MergerRetriever,
)
from langchain_core.callbacks import BaseCallbackHandler  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough  # noqa: E402

from contextpilot_integrations.langchain import ContextPilotCompressor  # noqa: E402
from tests.integrations.langchain_fakes import Lists, document, query, text_of  # noqa: E402
from tests.integrations.langchain_hooks import THREAD, fixed, ids, sessions, wrapped  # noqa: E402


def test_the_same_documents_in_an_order_that_is_cached(run):
    retriever = wrapped(Lists(scores=True))
    first, second = run(retriever, query("A")), run(retriever, query("B"))
    assert ids(first) == ["id-D1", "id-D2", "id-D3", "id-D4"]
    assert ids(second) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert [found.page_content for found in second] == [text_of(name) for name in ("D1", "D2", "D3", "D5")]
    assert [found.metadata[RANK] for found in second] == [1, 0, 3, 2]
    given = {found.id: found for found in Lists(scores=True).invoke(query("B"))}
    for found in second:
        assert found.metadata.items() >= given[found.id].metadata.items()
        assert found.type == "Document"


def test_sync_and_async_give_the_same():  # S1
    one, other = wrapped(Lists()), wrapped(Lists())
    for name in "ABBA":
        assert one.invoke(query(name), THREAD) == asyncio.run(other.ainvoke(query(name), THREAD))
    assert one.engine.stats() == other.engine.stats()
    assert one.engine.stats().planned == 4


def test_nothing_found_is_nothing(run):
    assert run(wrapped(fixed()), "q") == []


def test_errors_of_the_inner_retriever_come_through(run):
    def fail(query):
        raise OSError("down")

    retriever = wrapped(RunnableLambda(fail))
    with pytest.raises(OSError, match="down"):
        run(retriever, "q")
    assert retriever.engine.stats().planned == 0


def test_k_cuts_by_relevance_before_anything_moves(run):
    retriever = wrapped(Lists(), k=2)
    run(retriever, "D4,D3")
    assert ids(run(retriever, "D1,D1,D2,D4,D3")) == ["id-D1", "id-D2"]
    assert ids(run(retriever, "D1,D2,D3,D4", k=3)) == ["id-D1", "id-D2", "id-D3"]
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        wrapped(Lists(), k=0)
    with pytest.raises(ConfigError, match="k=0"):
        run(retriever, "D1,D2", k=0)


def test_the_inner_retriever_gets_config_and_the_other_arguments(run):
    base = Lists()
    run(wrapped(base), "D1", k=2, filter="f", session_id="u")
    assert base.seen == [{"k": 2, "filter": "f"}]
    seen = []
    run(wrapped(RunnableLambda(lambda q, config: seen.append(config["configurable"]) or [])), "D1", THREAD, k=2)
    assert seen == [{"thread_id": "T1"}]


def test_k_goes_only_to_a_retriever_that_takes_it(run):
    class Strict(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager, filter=None):
            return [document(name) for name in ("D1", "D2", "D3")]

    assert len(run(wrapped(Strict()), "q", k=2, filter="f")) == 2


def test_what_the_inner_retriever_lets_one_configure_is_offered():
    inner = Lists().configurable_fields(scores=ConfigurableField(id="scores"))
    retriever = wrapped(inner)
    assert [spec.id for spec in retriever.config_specs] == ["scores"]
    assert "score" in retriever.invoke("D1", {"configurable": {"scores": True}})[0].metadata


def test_engine_and_memory_keep_their_identity():
    engine, orders = ReuseEngine(), OrderMemory()
    retriever = wrapped(Lists(), engine=engine, orders=orders)
    for copied in (retriever.model_copy(), copy.deepcopy(retriever)):
        assert copied.engine is engine
        assert copied.orders is orders
    configurable = retriever.configurable_fields(session_id=ConfigurableField(id="chat"))
    configurable.invoke("D1,D2", {"configurable": {"chat": "c"}})
    assert sessions(retriever) == {"c"}
    assert engine.stats().planned == 1


CHAINS = {
    "retriever": lambda r: r,
    "with_config": lambda r: r.with_config(THREAD),
    "chain": lambda r: RunnableLambda(lambda x: x) | r,
    "assign": lambda r: RunnablePassthrough.assign(docs=(lambda x: x["q"]) | r),
    "ensemble": lambda r: EnsembleRetriever(retrievers=[r], weights=[1.0]),
    "wrapped again": wrapped,
}


@pytest.mark.parametrize("call", ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"])
@pytest.mark.parametrize("shape", CHAINS)
def test_the_thread_of_the_config_is_the_session(shape, call):
    retriever = wrapped(Lists())
    runnable = CHAINS[shape](retriever)
    asked = {"q": "D1,D2"} if shape == "assign" else "D1,D2"
    config = None if shape == "with_config" else THREAD

    async def astream():
        return [chunk async for chunk in runnable.astream(asked, config)]

    if call == "batch":
        runnable.batch([asked, asked], config)
    elif call == "abatch":
        asyncio.run(runnable.abatch([asked, asked], config))
    elif call == "stream":
        list(runnable.stream(asked, config))
    elif call == "astream":
        asyncio.run(astream())
    elif call == "ainvoke":
        asyncio.run(runnable.ainvoke(asked, config))
    else:
        runnable.invoke(asked, config)
    assert sessions(retriever) == {"T1"}


@pytest.mark.parametrize("call", ["invoke", "batch"])
@pytest.mark.parametrize("inside", [MergerRetriever, ContextualCompressionRetriever])
def test_where_langchain_drops_the_config_the_context_names_the_session(inside, call):
    retriever = wrapped(Lists())
    compressor = ContextPilotCompressor(engine=retriever.engine)
    if inside is MergerRetriever:
        runnable = MergerRetriever(retrievers=[retriever])
    else:
        runnable = ContextualCompressionRetriever(base_retriever=retriever, base_compressor=compressor)
    with session("mine"):
        runnable.batch(["D1,D2"]) if call == "batch" else runnable.invoke("D1,D2")
    assert sessions(retriever) == {"mine"}
    assert inside is MergerRetriever or sessions(compressor) == {"mine"}


def test_sticky_order_in_a_session():
    retriever = wrapped(Lists())
    retriever.invoke("D1,D2,D3", THREAD)
    assert ids(retriever.invoke("D4,D3,D2", THREAD)) == ["id-D2", "id-D3", "id-D4"]
    retriever.engine.reset()
    assert ids(retriever.invoke("D4,D3,D2", {"configurable": {"thread_id": "T2"}})) == ["id-D4", "id-D3", "id-D2"]


def test_a_batch_of_two_threads(run):  # S15
    retriever = wrapped(Lists())
    chain = RunnableLambda(lambda x: x) | retriever
    configs = [{"configurable": {"thread_id": name}} for name in ("T1", "T2")]
    for found in chain.batch(["D1,D2", "D1,D2"], configs):
        assert [d.page_content for d in found] == [text_of("D1"), text_of("D2")]
    assert sessions(retriever) == {"T1", "T2"}


def test_in_an_ensemble_and_around_one():
    retriever = wrapped(Lists())
    ensemble = EnsembleRetriever(retrievers=[retriever, Lists()], weights=[0.5, 0.5])
    assert set(ids(ensemble.invoke(query("A")))) == {"id-D1", "id-D2", "id-D3", "id-D4"}
    around = wrapped(EnsembleRetriever(retrievers=[Lists(), Lists()], weights=[0.5, 0.5]))
    around.invoke(query("A"))
    assert ids(around.invoke(query("B"))) == ["id-D1", "id-D2", "id-D3", "id-D5"]


def test_a_trace_shows_both_retrievers():
    class Seen(BaseCallbackHandler):
        def __init__(self):
            self.runs = []

        def on_retriever_start(self, serialized, query, *, run_id, parent_run_id=None, name="", **kwargs):
            self.runs.append((name or kwargs.get("name"), run_id, parent_run_id))

    seen = Seen()
    wrapped(Lists()).invoke("D1", {"callbacks": [seen]})
    (outer, outer_id, nobody), (inner, _, parent) = seen.runs
    assert (outer, inner) == ("ContextPilotRetriever", "Lists")
    assert nobody is None
    assert parent == outer_id
