"""The node postprocessor: what it gives back, whose order it keeps, and what it leaves alone."""

import asyncio
import copy
import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_integrations.reorder.ranks import PLACE, RANK
from contextpilot_integrations.session import session
from tests.conftest import require

require("llama_index.core")

from llama_index.core import Document, Settings, VectorStoreIndex  # noqa: E402
from llama_index.core.chat_engine import ContextChatEngine  # noqa: E402
from llama_index.core.embeddings import MockEmbedding  # noqa: E402
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler  # noqa: E402
from llama_index.core.memory import Memory  # noqa: E402
from llama_index.core.postprocessor import LongContextReorder, SimilarityPostprocessor  # noqa: E402
from llama_index.core.query_engine import CitationQueryEngine  # noqa: E402
from llama_index.core.schema import QueryBundle  # noqa: E402
from llama_index.core.tools import RetrieverTool  # noqa: E402
from llama_index_instrumentation import get_dispatcher  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from tests.integrations.llama_index_fakes import (  # noqa: E402
    D1,
    D2,
    D3,
    D5,
    TABLE,
    Recorder,
    TableRetriever,
    document,
    node,
    texts,
)
from tests.integrations.llama_index_hooks import nodes, query_engine, shape, warm  # noqa: E402


def test_nodes_come_back_in_the_order_of_the_cache_with_a_note_on_the_last():
    given = nodes(*TABLE["qB"])
    before = copy.deepcopy(given)
    found = warm().postprocess_nodes(given)
    assert texts(found) == [D1, D2, D3, D5]
    assert [item.score for item in found] == [0.8, 0.9, 0.6, 0.7]
    assert [item.node.metadata[RANK] for item in found] == [1, 0, 3, 2]
    assert {item.node.node_id for item in found} == {item.node.node_id for item in given}
    assert given == before
    assert all(item.node is not other.node for item in found for other in given)


def test_retrieval_order_where_nothing_is_cached():
    assert texts(ContextPilotPostprocessor().postprocess_nodes(nodes(*TABLE["qA"]))) == TABLE["qA"]


def test_a_second_pass_changes_nothing():
    hook = warm()
    once = hook.postprocess_nodes(nodes(*TABLE["qB"]))
    twice = hook.postprocess_nodes(once)
    assert shape(twice) == shape(once)
    kept = [key for item in twice for key in item.node.excluded_llm_metadata_keys]
    assert kept == [RANK, PLACE] * 4


def test_nodes_that_a_retriever_keeps_do_not_collect_anything():
    shared = nodes(*TABLE["qB"])
    before = copy.deepcopy(shared)
    engine = query_engine(warm(), table={"qB": shared})
    first, second = (engine.query("qB").source_nodes for _ in range(2))
    assert shape(first) == shape(second)
    assert shared == before


@pytest.mark.parametrize("found", [(), (D1,), (D1, D1, D1)], ids=["none", "one", "alike"])
def test_empty_only_for_nothing(found):
    assert len(ContextPilotPostprocessor().postprocess_nodes(nodes(*found))) == min(1, len(found))


def test_a_question_may_come_in_every_form_or_not_at_all():
    given = nodes(*TABLE["qB"])
    results = [
        warm().postprocess_nodes(given),
        warm().postprocess_nodes(given, QueryBundle("q")),
        warm().postprocess_nodes(given, query_str="q"),
        asyncio.run(warm().apostprocess_nodes(given)),
        asyncio.run(warm().apostprocess_nodes(given, query_str="q")),
    ]
    assert all(shape(result) == shape(results[0]) for result in results)
    with pytest.raises(ValueError, match="both"):
        warm().postprocess_nodes(given, QueryBundle("q"), "q")


def test_selection_of_the_engine_holds():
    hook = ContextPilotPostprocessor(engine=ReuseEngine(EngineConfig(budget=2, pinned=1)))
    assert texts(hook.postprocess_nodes(nodes(*TABLE["qA"]))) == [D1, D2]


def test_s1_every_way_in_gives_the_same_nodes_and_counts_once():
    async def run(way):
        hook = ContextPilotPostprocessor()
        retriever = TableRetriever()
        tool = RetrieverTool.from_defaults(retriever, node_postprocessors=[hook])
        engine = query_engine(hook)
        chats = ContextChatEngine.from_defaults(retriever, llm=Recorder(), node_postprocessors=[hook])
        results = []
        for question in ("qA one", "qB two"):
            before = hook.engine.stats().planned
            if way in ("query", "chat", "call"):
                results.append({"query": engine.query, "chat": chats.chat, "call": tool.call}[way](question))
            else:
                results.append(
                    await {"aquery": engine.aquery, "achat": chats.achat, "acall": tool.acall}[way](question)
                )
            assert hook.engine.stats().planned == before + 1
        return [shape(getattr(result, "source_nodes", None) or result.raw_output) for result in results]

    for way in ("query", "chat", "call"):
        assert asyncio.run(run(way)) == asyncio.run(run(f"a{way}"))
    assert asyncio.run(run("query")) == asyncio.run(run("call"))


def test_s2_repeated_nodes_are_given_again_in_full():
    llm = Recorder()
    engine = query_engine(ContextPilotPostprocessor(session_id="u"), llm, {"q": [D1, D2]})
    for _ in range(2):
        assert str(engine.query("q")).startswith("answer")
        assert D1 in llm.prompts[-1] and D2 in llm.prompts[-1]
        assert "See [Doc" not in llm.prompts[-1]


def test_s3_scores_survive_a_cut_off_behind_us():
    hook = ContextPilotPostprocessor()
    hook.postprocess_nodes(nodes(D2, D1))
    found = hook.postprocess_nodes([node(D1, 0.9), node(D2, 0.8)])
    found = SimilarityPostprocessor(similarity_cutoff=0.5).postprocess_nodes(found)
    assert texts(found) == [D2, D1]
    assert [item.score for item in found] == [0.8, 0.9]


def test_s7_repeats_within_one_call():
    hook = ContextPilotPostprocessor()
    assert texts(hook.postprocess_nodes(nodes(D1, D2, D1, D1))) == [D1, D2]
    assert hook.engine.stats().dropped_blocks == 2


def test_s16_braces_reach_the_prompt_as_they_are():
    braces = [f"{text[:100]} {{x}} {{context_str}} {{{{ {{query_str}}" for text in TABLE["qB"]]
    table = {"qA": [node(braces[1], id_="{b}"), node(braces[0], id_="{a}")], "qB": [node(t, 0.5) for t in braces]}
    hook = ContextPilotPostprocessor()
    llm = Recorder()
    engine = query_engine(hook, llm, table)
    chats = ContextChatEngine.from_defaults(TableRetriever(table), llm=llm, node_postprocessors=[hook])
    for ask in (engine.query, engine.query, chats.chat, chats.chat):
        ask("qA one")
        ask("qB two")
        assert all(text in llm.prompts[-1] for text in braces)


def test_sticky_order_keeps_what_a_session_had():
    hook = ContextPilotPostprocessor()
    other = [document(f"other{n}", 2000) for n in range(3)]
    for name, given, expected in (
        ("u", [D1, D2, D3], [D1, D2, D3]),
        ("v", [D3, *other], [D3, *other]),
        ("u", [D3, D5, D1], [D1, D3, D5]),  # D3 leads v's longer path, but u had D1 before it
    ):
        with session(name):
            assert texts(hook.postprocess_nodes(nodes(*given))) == expected


def test_forget_ends_a_conversation():
    hook = ContextPilotPostprocessor(session_id="u")
    hook.postprocess_nodes(nodes(D1, D2))
    assert hook.forget("u")
    assert not hook.forget("u")


def test_nothing_crosses_namespaces():
    engine = ReuseEngine()
    warm(engine=engine, namespace="a")
    hook = ContextPilotPostprocessor(engine=engine, namespace="b")
    assert texts(hook.postprocess_nodes(nodes(*TABLE["qB"]))) == TABLE["qB"]


def test_hooks_may_share_an_engine():
    engine = ReuseEngine()
    warm(engine=engine)
    hook = ContextPilotPostprocessor(engine=engine)
    assert hook.engine is engine
    assert texts(hook.postprocess_nodes(nodes(*TABLE["qB"])))[:3] == [D1, D2, D3]


def test_s15_many_sessions_at_once_lose_nothing():
    chance = random.Random(3)
    pool = [document(f"C{n}") for n in range(30)]
    lists = [chance.sample(pool, 6) for _ in range(200)]
    hook = ContextPilotPostprocessor()
    engine = query_engine(hook, table={f"q{n:03}": found for n, found in enumerate(lists)})

    async def ask(n):
        with session(f"user {n % 20}"):
            return await engine.aquery(f"q{n:03}")

    async def all_at_once():
        return await asyncio.gather(*map(ask, range(200)))

    for found, response in zip(lists, asyncio.run(all_at_once()), strict=True):
        assert sorted(texts(response.source_nodes)) == sorted(found)
    with ThreadPoolExecutor(8) as threads:
        for found, result in zip(
            lists, threads.map(lambda found: hook.postprocess_nodes(nodes(*found)), lists), strict=True
        ):
            assert sorted(texts(result)) == sorted(found)
    assert hook.engine.stats().planned == 400
    hook.engine.check_integrity()


def test_copies_share_the_state_and_pickling_is_refused():
    hook = warm(session_id="u", memory=Memory.from_defaults(session_id="m"))
    for made in (copy.copy(hook), copy.deepcopy(hook), hook.model_copy(), hook.model_copy(deep=True)):
        assert made is not hook
        assert made.engine is hook.engine and made.memory is hook.memory and made._orders is hook._orders
    with pytest.raises(TypeError, match="one per process"):
        pickle.dumps(hook)


def test_serialisation_names_the_class_and_leaves_the_state_out():
    hook = ContextPilotPostprocessor(session_id="u", memory=Memory.from_defaults(session_id="m"))
    data = json.loads(hook.to_json())
    assert data == {
        "class_name": "ContextPilotPostprocessor",
        "session_id": "u",
        "namespace": "default",
    }
    made = ContextPilotPostprocessor.from_dict(data)
    assert made.session_id == "u"
    assert made.engine is not hook.engine


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="engine"):
        ContextPilotPostprocessor(engine="engine")
    with pytest.raises(ConfigError):
        ContextPilotPostprocessor(engine=ReuseEngine(EngineConfig(note="loud")))


def test_a_call_is_one_span():
    handler = SimpleSpanHandler()
    root = get_dispatcher()
    root.add_span_handler(handler)
    try:
        ContextPilotPostprocessor().postprocess_nodes(nodes(D1))
    finally:
        root.span_handlers.remove(handler)
    assert [span.id_.split("-")[0] for span in handler.completed_spans] == [
        "ContextPilotPostprocessor._postprocess_nodes"
    ]


def test_in_an_index_with_citations_and_in_front_of_a_reorder_that_undoes_it():
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TABLE["qA"]], embed_model=MockEmbedding(4))
    hook = ContextPilotPostprocessor()
    llm = Recorder()
    engine = index.as_query_engine(llm=llm, similarity_top_k=4, node_postprocessors=[hook])
    engine.query("one")
    assert all(text in llm.prompts[0] for text in TABLE["qA"])
    cited = CitationQueryEngine(
        retriever=TableRetriever(), llm=llm, node_postprocessors=[hook], callback_manager=Settings.callback_manager
    )
    cited.query("qA one")
    assert "Source 1:" in llm.prompts[-1] and RANK not in llm.prompts[-1]
    assert len(LongContextReorder().postprocess_nodes(hook.postprocess_nodes(nodes(*TABLE["qB"])))) == 4


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["compact", "tree_summarize", "simple_summarize", "refine"])
def test_response_modes_work(mode, streaming):
    engine = query_engine(warm(), response_mode=mode, streaming=streaming)
    assert texts(engine.query("qB").source_nodes) == [D1, D2, D3, D5]
