"""The compressor and the step of a chain, on the real LangChain."""

import asyncio
import copy

import pytest

from contextpilot_core import ConfigError, ReuseEngine
from contextpilot_integrations.reorder.ranks import RANK
from contextpilot_integrations.session import session
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from langchain_classic.retrievers import ContextualCompressionRetriever  # noqa: E402
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain import ContextPilotCompressor, reorder_documents  # noqa: E402
from tests.integrations.langchain_fakes import Lists, document, query, text_of  # noqa: E402
from tests.integrations.langchain_hooks import THREAD, ids, sessions, wrapped  # noqa: E402


def test_compressor(run):
    compressor = ContextPilotCompressor(engine=ReuseEngine())
    retriever = ContextualCompressionRetriever(base_retriever=Lists(), base_compressor=compressor)
    run(retriever, query("A"))
    found = run(retriever, query("B"))
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert [each.page_content for each in found] == [text_of(name) for name in ("D1", "D2", "D3", "D5")]


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


def test_hook_behind_hook_knows_the_true_relevance():
    engine = ReuseEngine()
    twice = ContextualCompressionRetriever(
        base_retriever=wrapped(Lists(), engine=engine), base_compressor=ContextPilotCompressor(engine=engine)
    )
    twice.invoke(query("A"))
    found = twice.invoke(query("B"))
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert found[-1].page_content == text_of("D5")
    assert [d.metadata[RANK] for d in found] == [1, 0, 3, 2]


def test_step_of_a_chain(run):
    engine = ReuseEngine()
    chain = RunnableLambda(lambda x: x["input"]) | Lists() | reorder_documents(engine, k=4)
    run(chain, {"input": query("A")}, THREAD)
    assert ids(run(chain, {"input": query("B")}, THREAD)) == ["id-D1", "id-D2", "id-D3", "id-D5"]


def test_both_hooks_refuse_what_breaks_a_rule():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        ContextPilotCompressor(k=0)
    with pytest.raises(ConfigError, match="k=0 must be a whole number"):
        reorder_documents(ReuseEngine(), k=0).invoke([document("D1")])


def test_the_documents_given_stay_as_they_are():
    documents = [document(name) for name in ("D2", "D1", "D2")]
    before = copy.deepcopy(documents)
    engine = ReuseEngine()
    for hook in (
        lambda given: ContextPilotCompressor(engine=engine).compress_documents(given, "q"),
        reorder_documents(engine).invoke,
    ):
        hook([document("D1"), document("D2")])
        found = hook(documents)
        assert documents == before
        assert all(new is not old for new in found for old in documents)


def test_a_step_sees_the_session_of_every_item_of_a_batch(run):
    engine = ReuseEngine()
    step = Lists() | reorder_documents(engine)
    run(step, "D1,D2,D3", THREAD)
    engine.reset()  # what is left is the memory of the sessions
    found = step.batch(["D3,D2", "D3,D2"], [THREAD, {"configurable": {"thread_id": "T2"}}], max_concurrency=1)
    assert ids(found[0]) == ["id-D2", "id-D3"]
    engine.reset()
    assert ids(run(step, "D3,D2", {"configurable": {"thread_id": "T3"}})) == ["id-D3", "id-D2"]
    engine.reset()
    with session("T1"):
        assert ids(run(step, "D3,D2")) == ["id-D2", "id-D3"]


def test_a_step_and_a_compressor_share_what_the_engine_knows():
    engine = ReuseEngine()
    compressor = ContextPilotCompressor(engine=engine)
    compressor.compress_documents([document(name) for name in ("D1", "D2", "D3", "D4")], "q")
    found = reorder_documents(engine).invoke([document(name) for name in ("D2", "D1", "D5", "D3")])
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    elsewhere = reorder_documents(engine, namespace="other")
    assert ids(elsewhere.invoke([document(name) for name in ("D2", "D1")])) == ["id-D2", "id-D1"]


def test_copies_of_a_compressor_share_engine_and_memory():
    compressor = ContextPilotCompressor()
    copied = copy.deepcopy(compressor)
    assert copied.engine is compressor.engine and copied.orders is compressor.orders
