"""Calls that come together are planned together, through every hook."""

import asyncio
import copy
import random

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_core.engine.scheduler import WindowScheduler
from contextpilot_integrations.reorder.ranks import RANK
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from langchain_classic.retrievers import ContextualCompressionRetriever  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain import ContextPilotCompressor, reorder_documents  # noqa: E402
from tests.integrations.langchain_fakes import Lists  # noqa: E402
from tests.integrations.langchain_hooks import ids, wrapped  # noqa: E402


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
        assert {d.page_content for d in first} == {d.page_content for d in second}
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
