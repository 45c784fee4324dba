"""LangChain documents in and out of a plan: copies, their ranks, their sources."""

import copy

import numpy as np
import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine, WindowScheduler
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.reorder.ranks import SOURCES
from tests.conftest import require
from tests.core.virtual_loop import run as run_virtually

require("langchain_core")
require("langchain_classic")

from langchain_classic.retrievers import MergerRetriever  # noqa: E402
from langchain_core.documents import Document  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain.documents import (  # noqa: E402
    arranged,
    arranged_in_turn,
    as_block,
    by_relevance,
    one_source,
    relevance,
)
from tests.integrations.langchain_fakes import Lists, document, text_of  # noqa: E402
from tests.integrations.langchain_hooks import fixed, ids, wrapped  # noqa: E402


def test_inputs_are_never_changed():
    documents = [document(name) for name in ("D2", "D1", "D2")]
    before = copy.deepcopy(documents)
    retriever = wrapped(fixed(*documents))
    wrapped(fixed(document("D1"), document("D2")), engine=retriever.engine).invoke("q")
    found = retriever.invoke("q")
    assert ids(found) == ["id-D1", "id-D2"]
    assert documents == before
    assert all(new is not old for new in found for old in documents)


def test_documents_without_ids_are_known_by_their_texts():  # S5
    base = Lists()
    retriever = wrapped(RunnableLambda(lambda q: [d.model_copy(update={"id": None}) for d in base.invoke(q)]))
    assert [d.id for d in retriever.invoke("D1,D2")] == [None, None]
    found = retriever.invoke("D3,D2,D1")
    assert [d.page_content for d in found] == [text_of(n) for n in ("D1", "D2", "D3")]


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
    assert [d.page_content for d in found] == texts[::-1]


OPTIONS = {"k": None, "session_id": None, "namespace": "default"}


def moved(engine=None):
    """Four documents, of which three were sent before in another order."""
    engine, orders = engine or ReuseEngine(), OrderMemory()
    arranged(engine, [document(name) for name in ("D1", "D2", "D3", "D4")], **OPTIONS, orders=orders)
    return arranged(engine, [document(name) for name in ("D2", "D1", "D5", "D3")], **OPTIONS, orders=orders)


def test_a_block_has_the_text_alone_for_its_identity():
    titled = as_block(document("D1", title="Drawers", score=0.7))
    assert (titled.text, titled.id, titled.title) == (text_of("D1"), "id-D1", "Drawers")
    assert titled.metadata == {"source": "D1.md", "title": "Drawers", "score": 0.7}
    assert as_block(document("D1", title=7)).title is None
    assert as_block(Document(page_content="x")).id is None


def test_the_order_of_relevance_is_found_again():
    found = moved()
    assert ids(found) == ["id-D1", "id-D2", "id-D3", "id-D5"]
    assert relevance(found) == (1, 0, 3, 2)
    again = by_relevance(found)
    assert ids(again) == ["id-D2", "id-D1", "id-D5", "id-D3"]
    assert [each.page_content for each in again] == [text_of(name) for name in ("D2", "D1", "D5", "D3")]
    assert again[0] is found[1]


def test_documents_of_others_are_in_the_order_given():
    given = [document(name) for name in ("D3", "D1", "D2")]
    assert relevance(given) == (0, 1, 2)
    assert all(one is other for one, other in zip(by_relevance(given), given, strict=True))
    assert by_relevance([]) == []


def test_in_turn_is_the_same_at_once_and_in_a_window():
    engine = ReuseEngine()
    given = [document(name) for name in ("D2", "D1", "D2")]

    async def both():
        options = {**OPTIONS, "orders": OrderMemory()}
        at_once = await arranged_in_turn(ReuseEngine(), None, given, **options)
        return at_once, await arranged_in_turn(engine, WindowScheduler(engine), given, **options)

    at_once, waited = run_virtually(both())
    assert at_once == waited == arranged(ReuseEngine(), given, **OPTIONS, orders=OrderMemory())


def test_a_scheduler_of_another_engine_would_plan_elsewhere():
    scheduler = WindowScheduler(ReuseEngine())
    with pytest.raises(ConfigError, match="scheduler plans with another engine; give both"):
        run_virtually(arranged_in_turn(ReuseEngine(), scheduler, [], **OPTIONS, orders=OrderMemory()))


def test_metadata_that_cannot_be_compared_do_no_harm():
    found = one_source([Document("tea", metadata={"source": each, "vector": np.zeros(3)}) for each in "ab"])
    assert [each["metadata"]["source"] for each in found.metadata[SOURCES]] == ["a", "b"]
    same = Document("tea", metadata={"vector": np.zeros(3)})
    assert SOURCES not in one_source([same, same]).metadata
