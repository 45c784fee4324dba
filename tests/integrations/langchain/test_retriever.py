"""The retriever, the compressor and the step of a chain, on the real LangChain (cases S1, S5-S7, S15, S16)."""

import asyncio
import copy
import random
import uuid

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_core.engine.scheduler import WindowScheduler
from contextpilot_integrations.reorder.notes import RANK, SOURCES, strip_note
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.session import session
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from langchain_classic.retrievers import (  # noqa: E402
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MergerRetriever,
)
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline  # noqa: E402
from langchain_core.callbacks import BaseCallbackHandler  # noqa: E402
from langchain_core.documents import Document  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402
from langchain_core.runnables import (  # noqa: E402
    ConfigurableField,
    RunnableLambda,
    RunnablePassthrough,
)

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotCompressor,
    ContextPilotRetriever,
    reorder_documents,
)
from tests.integrations.langchain_fakes import Lists, document, query, text_of  # noqa: E402

THREAD = {"configurable": {"thread_id": "T1"}}


def fixed(*documents):
    return RunnableLambda(lambda query: list(documents))


def wrapped(base, **fields):
    return ContextPilotRetriever(base_retriever=base, engine=fields.pop("engine", ReuseEngine()), **fields)


def ids(documents):
    return [document.id for document in documents]


def sessions(retriever):
    """The sessions that a hook has seen."""
    return {session_id for _, session_id in retriever.orders._orders}


@pytest.fixture(params=["sync", "async"])
def run(request):
    def call(retriever, query, config=None, **options):
        if request.param == "sync":
            return retriever.invoke(query, config, **options)
        return asyncio.run(retriever.ainvoke(query, config, **options))

    return call


# --- what comes back -----------------------------------------------------------------------------------------------


def test_the_same_documents_in_an_order_that_is_cached(run):
    retriever = wrapped(Lists(scores=True))
    first, second = run(retriever, query("A")), run(retriever, query("B"))
    assert ids(first) == ["id-D1", "id-D2", "id-D3", "id-D4"]
    assert ids(second) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert [found.page_content for found in second[:-1]] == [text_of("D1"), text_of("D2"), text_of("D3")]
    assert second[-1].page_content == text_of("D5") + "\n\nDocuments above by relevance: 2nd, 1st, 4th, 3rd"
    assert [found.metadata[RANK] for found in second] == [1, 0, 3, 2]
    given = {found.id: found for found in Lists(scores=True).invoke(query("B"))}
    for found in second:
        assert found.metadata.items() >= given[found.id].metadata.items()
        assert found.type == "Document"


def test_inputs_are_never_changed():
    documents = [document(name) for name in ("D2", "D1", "D2")]
    before = copy.deepcopy(documents)
    retriever = wrapped(fixed(*documents))
    wrapped(fixed(document("D1"), document("D2")), engine=retriever.engine).invoke("q")
    found = retriever.invoke("q")
    assert ids(found) == ["id-D1", "id-D2"]
    assert documents == before
    assert all(new is not old for new in found for old in documents)


def test_sync_and_async_give_the_same():  # S1
    one, other = wrapped(Lists()), wrapped(Lists())
    for name in "ABBA":
        assert one.invoke(query(name), THREAD) == asyncio.run(other.ainvoke(query(name), THREAD))
    assert one.engine.stats() == other.engine.stats()
    assert one.engine.stats().planned == 4


def test_documents_without_ids_are_known_by_their_texts():  # S5
    base = Lists()
    retriever = wrapped(RunnableLambda(lambda q: [d.model_copy(update={"id": None}) for d in base.invoke(q)]))
    assert [d.id for d in retriever.invoke("D1,D2")] == [None, None]
    found = retriever.invoke("D3,D2,D1")
    assert [strip_note(d.page_content) for d in found] == [text_of(n) for n in ("D1", "D2", "D3")]


def test_one_text_from_two_sources_is_one_document_with_both():  # S6
    twice = [document("D1", source="a"), Document(id="b7", page_content=text_of("D1"), metadata={"source": "b"})]
    (found,) = wrapped(fixed(*twice)).invoke("q")
    assert found.metadata["source"] == "a"
    assert [entry["metadata"]["source"] for entry in found.metadata[SOURCES]] == ["a", "b"]
    assert [entry["id"] for entry in found.metadata[SOURCES]] == ["id-D1", "b7"]
    both = wrapped(fixed(*twice), engine=ReuseEngine(EngineConfig(dedup=False))).invoke("q")
    assert [d.metadata["source"] for d in both] == ["a", "b"]
    assert all(SOURCES not in d.metadata for d in both)


def test_sources_are_not_lost_in_a_second_hook():
    twice = [document("D1", source="a"), document("D1", source="b"), document("D2")]
    inner = wrapped(fixed(*twice))
    outer = wrapped(MergerRetriever(retrievers=[inner, wrapped(fixed(document("D1", source="c")))]))
    found = outer.invoke("q")
    assert ids(found) == ["id-D1", "id-D2"]
    assert [entry["metadata"]["source"] for entry in found[0].metadata[SOURCES]] == ["a", "b", "c"]


def test_the_same_document_several_times():  # S7
    retriever = wrapped(Lists())
    assert ids(retriever.invoke("D1,D2,D1,D1")) == ["id-D1", "id-D2"]
    assert retriever.engine.stats().dropped_blocks == 2


def test_braces_stay():  # S16
    texts = ["{x} and {context_str} {{ }} %s " * 9, "{query_str} {0} " * 9, "plain {{{ " * 20]
    documents = [Document(id=f"{{{n}}}", page_content=t, metadata={"source": "{s}"}) for n, t in enumerate(texts)]
    retriever = wrapped(fixed(*documents))
    wrapped(fixed(*documents[::-1]), engine=retriever.engine).invoke("q")
    found = retriever.invoke("q")
    assert [strip_note(d.page_content) for d in found] == texts[::-1]
    note = found[-1].page_content.removeprefix(texts[0])
    assert note
    assert not set("{}%") & set(note)


def test_nothing_found_is_nothing(run):
    assert run(wrapped(fixed()), "q") == []


def test_errors_of_the_inner_retriever_come_through(run):
    def fail(query):
        raise OSError("down")

    retriever = wrapped(RunnableLambda(fail))
    with pytest.raises(OSError, match="down"):
        run(retriever, "q")
    assert retriever.engine.stats().planned == 0


# --- arguments and fields ------------------------------------------------------------------------------------------


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


def test_note_of_the_hook(run):
    retriever = wrapped(Lists(), note="none")
    run(retriever, query("A"))
    assert [d.page_content for d in run(retriever, query("B"))] == [text_of(n) for n in ("D1", "D2", "D3", "D5")]


# --- sessions (2_frameworks, 1.2) ----------------------------------------------------------------------------------

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


def test_which_name_counts(run):
    def named(*, options=None, config=None, field=None, around=None):
        retriever = wrapped(Lists(), session_id=field)
        if around is None:
            run(retriever, "D1,D2", config, **(options or {}))
        else:
            with session(around):
                run(retriever, "D1,D2", config, **(options or {}))
        return sessions(retriever)

    everything = {
        "configurable": {"conversation_id": "c", "thread_id": "t", "session_id": "s"},
        "metadata": {"session_id": "m"},
    }
    everywhere = {"options": {"session_id": "call"}, "config": everything, "field": "field", "around": "around"}
    assert named(**everywhere) == {"call"}
    assert named(**{**everywhere, "options": {}}) == {"s"}
    del everything["configurable"]["session_id"]
    assert named(**{**everywhere, "options": {}}) == {"t"}
    del everything["configurable"]["thread_id"]
    assert named(**{**everywhere, "options": {}}) == {"c"}
    del everything["configurable"]
    assert named(**{**everywhere, "options": {}}) == {"m"}
    assert named(field="field", around="around") == {"around"}
    assert named(field="field") == {"field"}
    assert named() == set()
    assert named(config={"configurable": {"thread_id": 17}}) == {"17"}
    assert named(config={"configurable": {"thread_id": ""}}) == set()
    number = uuid.uuid4()
    assert named(options={"session_id": number}) == {str(number)}


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


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "in windows"])
@pytest.mark.parametrize("shape", ["retriever", "step"])
def test_200_items_of_20_sessions_at_once_are_those_of_a_sequential_run(shape, waits):  # S15
    dice = random.Random(3)
    asked = [",".join(dice.choices([f"D{n}" for n in range(1, 15)], k=6)) for _ in range(200)]
    configs = [{"configurable": {"session_id": f"s{n % 20}"}} for n in range(200)]

    def build():
        engine = ReuseEngine()
        scheduler = WindowScheduler(engine) if waits else None
        if shape == "retriever":
            return engine, RunnableLambda(lambda x: x) | wrapped(Lists(), engine=engine, scheduler=scheduler)
        return engine, RunnableLambda(lambda x: x) | Lists() | reorder_documents(engine, scheduler=scheduler)

    async def at_once(chain):
        return await chain.abatch(asked, configs)

    engine, chain = build()
    together = asyncio.run(at_once(chain))
    sequential_engine, chain = build()
    one_by_one = [chain.invoke(item, config) for item, config in zip(asked, configs, strict=True)]
    engine.check_integrity()
    for first, second in zip(together, one_by_one, strict=True):
        assert {strip_note(d.page_content) for d in first} == {strip_note(d.page_content) for d in second}
        assert len(first) == len(second)  # drops
        assert sorted(d.metadata[RANK] for d in first) == sorted(d.metadata[RANK] for d in second)
        assert not any("See [Doc" in d.page_content or "Same text" in d.page_content for d in first)  # hints: none
    assert engine.stats().dropped_blocks == sequential_engine.stats().dropped_blocks > 0


def in_windows(shape, engine):
    scheduler = WindowScheduler(engine, max_wait_ms=100)
    if shape == "retriever":
        return wrapped(Lists(), engine=engine, scheduler=scheduler)
    if shape == "step":
        return Lists() | reorder_documents(engine, scheduler=scheduler)
    compressor = ContextPilotCompressor(engine=engine, scheduler=scheduler)
    return ContextualCompressionRetriever(base_retriever=Lists(), base_compressor=compressor)


@pytest.mark.parametrize("shape", ["retriever", "step", "compressor"])
def test_calls_that_come_together_are_a_window(shape):
    asked = ["D1,D2,D5", "D3,D4,D6", "D7,D2,D1", "D8,D4,D3"]
    engine, sent = ReuseEngine(EngineConfig(note="none", kv_block=1, cache_tokens=60)), []
    chain = copy.deepcopy(in_windows(shape, engine)) | RunnableLambda(lambda found: sent.append(ids(found)))

    async def at_once():
        await asyncio.gather(*(chain.ainvoke(each) for each in asked))

    asyncio.run(at_once())
    assert ["id-D3" in found for found in sent] in ([False, False, True, True], [True, True, False, False])
    together = engine.stats()
    engine.reset()
    asyncio.run(chain.abatch(asked))
    assert engine.stats() == together
    assert together.expected_reused_tokens > 0
    assert together.committed == 4
    engine.check_integrity()


def test_a_scheduler_of_another_engine_is_refused():
    retriever = wrapped(Lists(), scheduler=WindowScheduler(ReuseEngine()))
    with pytest.raises(ConfigError, match="another engine"):
        asyncio.run(retriever.ainvoke("D1"))
    assert ids(retriever.invoke("D1")) == ["id-D1"]


# --- inside LangChain's own retrievers and chains ------------------------------------------------------------------


def test_in_an_ensemble_and_around_one():
    retriever = wrapped(Lists())
    ensemble = EnsembleRetriever(retrievers=[retriever, Lists()], weights=[0.5, 0.5])
    assert set(ids(ensemble.invoke(query("A")))) == {"id-D1", "id-D2", "id-D3", "id-D4"}
    around = wrapped(EnsembleRetriever(retrievers=[Lists(), Lists()], weights=[0.5, 0.5]))
    around.invoke(query("A"))
    assert ids(around.invoke(query("B"))) == ["id-D1", "id-D2", "id-D3", "id-D5"]


def test_compressor(run):
    compressor = ContextPilotCompressor(engine=ReuseEngine())
    retriever = ContextualCompressionRetriever(base_retriever=Lists(), base_compressor=compressor)
    run(retriever, query("A"))
    found = run(retriever, query("B"))
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert found[-1].page_content.endswith("by relevance: 2nd, 1st, 4th, 3rd")


def test_compressor_in_a_pipeline_and_alone():
    engine = ReuseEngine()
    pipeline = DocumentCompressorPipeline(transformers=[ContextPilotCompressor(engine=engine, k=2)])
    documents = [document(name) for name in ("D2", "D2", "D1", "D3")]
    assert ids(pipeline.compress_documents(documents, "q")) == ["id-D2", "id-D1"]
    compressor = ContextPilotCompressor(session_id="u")
    assert compressor.compress_documents(tuple(documents), "q") == asyncio.run(
        ContextPilotCompressor(session_id="u").acompress_documents(documents, "q")
    )
    assert sessions(compressor) == {"u"}
    assert compressor.compress_documents([], "q") == []


def test_compressor_sees_the_session_of_a_chain():
    compressor = ContextPilotCompressor()
    inner = ContextualCompressionRetriever(base_retriever=Lists(), base_compressor=compressor)
    (RunnableLambda(lambda x: x) | inner).invoke("D1,D2", THREAD)
    assert sessions(compressor) == {"T1"}


def test_hook_behind_hook_adds_one_note_by_the_true_relevance():
    engine = ReuseEngine()
    twice = ContextualCompressionRetriever(
        base_retriever=wrapped(Lists(), engine=engine), base_compressor=ContextPilotCompressor(engine=engine)
    )
    twice.invoke(query("A"))
    found = twice.invoke(query("B"))
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert found[-1].page_content == text_of("D5") + "\n\nDocuments above by relevance: 2nd, 1st, 4th, 3rd"
    assert [d.metadata[RANK] for d in found] == [1, 0, 3, 2]


def test_step_of_a_chain(run):
    engine = ReuseEngine()
    chain = RunnableLambda(lambda x: x["input"]) | Lists() | reorder_documents(engine, k=4)
    run(chain, {"input": query("A")}, THREAD)
    assert ids(run(chain, {"input": query("B")}, THREAD)) == ["id-D1", "id-D2", "id-D3", "id-D5"]


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
